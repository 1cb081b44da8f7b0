"""The results that README and docs show, in benchmarks/results, from what --benchmark-json wrote of a whole run.

python -m benchmarks.results build/bench.json      stores them; one file for each kind of environment, a case a line
"""

import json
import sys
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
ON_GPU = ("cuda", "deferred")
OF_MODELS = ("remove_padding", "online")
NOT_SHOWN = ("never_slower",)

Record = dict[str, Any]


def place_of(job: str, machine: Record) -> str:
    """The file of a job's results: what it ran on."""
    if not machine["gil"]:
        return "without_gil"
    if machine.get("transformers", "").startswith("4."):
        return "models_4" if job in OF_MODELS else "transformers_4"
    return "gpu" if job in ON_GPU else "models" if job in OF_MODELS else "cpu"


def facts_of(machine_info: Record) -> Record:
    cpu = machine_info["cpu"]
    # Virtual machines often cut the model off the name; family and model still tell the generation.
    facts = {"cpu": cpu.get("brand_raw", "unknown"), "cpu_family": cpu.get("family"), "cpu_model": cpu.get("model")}
    facts |= {"architecture": machine_info["machine"], "python": machine_info["python_version"]}
    known = {"node", "processor", "machine", "release", "system", "cpu", "python_version"}
    return facts | {name: value for name, value in machine_info.items() if name not in known and "python_" not in name}


def measured(benchmark: Record) -> Record:
    """What is said of a way: its times in nanoseconds, and what the test put into extra_info beside."""
    extra, stats = dict(benchmark["extra_info"]), benchmark["stats"]
    extra.pop("facts", None)
    said_as, factor = extra.pop("said_as", "ns"), extra.pop("factor", None)
    if factor is None:
        return extra
    times = {said_as: stats["median"]}
    if said_as == "ns":
        times |= {"q1_ns": stats["q1"], "q3_ns": stats["q3"], "min_ns": stats["min"]}
    times = {name: seconds * factor * 1e9 for name, seconds in times.items()}
    return {**times, **({"rounds": stats["rounds"], **extra} if said_as == "ns" else {})}


def cases_of(document: Record) -> dict[str, list[Record]]:
    """By job, its cases: the name, the facts, and what was measured of each way."""
    jobs: dict[str, dict[str, Record]] = {}
    for benchmark in document["benchmarks"]:
        job = Path(benchmark["fullname"].split("::")[0]).stem.removeprefix("test_")
        case, way = benchmark["params"]["case"], benchmark["params"]["way"]
        record = jobs.setdefault(job, {}).setdefault(case, {"case": case, "ways": {}})
        record |= {**benchmark["extra_info"].get("facts", {}), "ways": record["ways"]}
        record["ways"].setdefault(way, {}).update(measured(benchmark))
    return {job: list(cases.values()) for job, cases in jobs.items() if job not in NOT_SHOWN}


def store(document: Record, folder: Path = RESULTS) -> None:
    """Write the results with seven digits of a number."""
    places: dict[str, dict[str, list[Record]]] = {}
    machine = facts_of(document["machine_info"])
    for job, cases in cases_of(document).items():
        places.setdefault(place_of(job, machine), {})[job] = cases
    for place, jobs in places.items():
        write({"machine": machine, "jobs": jobs}, folder / f"{place}.json")


def write(document: Record, path: Path) -> None:
    text = json.dumps(document, ensure_ascii=False)
    machine, jobs = json.loads(text, parse_float=lambda number: float(f"{float(number):.7g}")).values()
    lines = (",\n".join(json.dumps(case, ensure_ascii=False) for case in cases) for cases in jobs.values())
    listed = ",\n".join(f'"{job}": [\n{cases}\n]' for job, cases in zip(jobs, lines, strict=True))
    path.write_text(f'{{"machine": {json.dumps(machine)},\n"jobs": {{\n{listed}\n}}}}\n', encoding="utf-8")


if __name__ == "__main__":
    store(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
