"""The tables of README and docs, from the JSON in benchmarks/results.

    python -m cogapp -P -r -I benchmarks README.md docs/performance/*.md          writes them anew
    python -m cogapp -P --check -I benchmarks README.md docs/performance/*.md     fails where one differs

A page calls a function of this module between `[[[cog` and `[[[end]]]`; cog puts the text below it.
"""

import json
from collections.abc import Callable, Iterable
from statistics import quantiles
from typing import Any

from benchmarks.results import RESULTS, place_of

TIMES = "\N{MULTIPLICATION SIGN}"
VERSIONS = ("_4", "_without_gil")  # what a name ends with if it is not of the usual environment
SIDES = ("transformers", "quadrat")
USUAL = (32, 512)  # rows and the tokens of the longest

Record = dict[str, Any]
Cell = Callable[[Any], str]  # what a case says in a column


def split(name: str) -> tuple[str, str]:
    """The job that a name names, and the file of its results: those of language_4 are of transformers 4.57."""
    version = next((version for version in VERSIONS if name.endswith(version)), "")
    job = name.removesuffix(version)
    return job, place_of(job, {"gil": version != "_without_gil", "transformers": version[1:] + "."})


def document(name: str) -> Record:
    """The results of one environment: the machine, and by job the cases."""
    return json.loads((RESULTS / f"{split(name)[1]}.json").read_text(encoding="utf-8"))  # type: ignore[no-any-return]


def load(name: str, part: str | None = None) -> list[Record]:
    """The cases of a job, or those of a part of it."""
    cases = document(name)["jobs"][split(name)[0]]
    return [case for case in cases if part is None or case.get("part") == part]


def time(nanoseconds: float | None) -> str:
    """A time with three digits, in the unit that it needs."""
    if nanoseconds is None:
        return ""
    unit, size = next((unit, size) for unit, size in (("s", 1e9), ("ms", 1e6), ("µs", 0)) if nanoseconds >= size)
    value = nanoseconds / (size or 1e3)
    return f"{value:,.0f} {unit}" if value >= 100 else f"{value:.3g} {unit}"


def times(ratio: float | None) -> str:
    if ratio is None:
        return ""
    return f"{ratio:,.0f}{TIMES}" if ratio >= 10 else f"{ratio:.1f}{TIMES}"


def share(value: float) -> str:
    return f"{value:.1%}" if value < 0.1 else f"{value:.0%}"


def measured(case: Record | None, way: str, what: str = "ns") -> Any:
    """What was measured of a way; None where nothing was."""
    return (case or {}).get("ways", {}).get(way, {}).get(what)


def fact(name: str) -> Cell:
    """A text, or a count with separators."""
    return lambda case: f"{case[name]:,}" if isinstance(case[name], int) else case[name] or ""


def taken(way: str) -> Cell:
    return lambda case: time(measured(case, way))


def gain(way: str) -> Cell:
    """The speed-up over a way: the median of ratios, or where each way was alone, the ratio of medians."""

    def cell(case: Record | None) -> str:
        ratio, ours = measured(case, way, "ratio"), measured(case, "quadrat")
        return times(measured(case, way) / ours if ratio is None and None not in (measured(case, way), ours) else ratio)

    return cell


def ratio(way: str, digits: int = 2) -> Cell:
    return lambda case: f"{measured(case, way, 'ratio'):.{digits}f}"


def rate(way: str) -> Cell:
    return lambda case: f"{1e9 / measured(case, way):,.0f}"


def against(way: str) -> tuple[Cell, Cell, Cell]:
    """Its time, quadrat's, and the speed-up."""
    return taken(way), taken("quadrat"), gain(way)


BOTH = against("transformers")


def put(headings: str, rows: Iterable[Any], *cells: Cell, texts: int = 1) -> None:
    """Print a Markdown table; `headings` are separated by bars, and the first `texts` columns are text.

    Rows are cases, of which `cells` make texts, or without `cells` texts.
    """
    from tabulate import tabulate

    names = [name.strip() for name in headings.split("|")]
    sides = ["left" if place < texts else "right" for place in range(len(names))]
    lines = [[cell(row) for cell in cells] if cells else row for row in rows]
    print(tabulate(lines, names, tablefmt="pipe", colalign=sides, disable_numparse=True))


def crossed(cases: list[Record], row: str, column: str) -> Iterable[Record]:
    """A record for each row of a table: its first case, and all of them by their values of a column."""
    rows: dict[Any, Record] = {}
    for case in cases:
        rows.setdefault(case[row], dict(case))[case[column]] = case
    return rows.values()


def versions(facts: Record, *names: str) -> str:
    return ", ".join(f"{name} {facts[name]}" for name in names if name in facts)


def conditions(facts: Record) -> str:
    """One sentence on the machine and the versions."""
    where = f"{facts['cpu']} (family {facts['cpu_family']}, model {facts['cpu_model']}), {facts['cores']} cores"
    of = versions(facts, "torch", "transformers", "trl", "numpy")
    return f"Medians, one thread; {where}; Python {facts['python']}, {of}."


def measured_on(name: str) -> str:
    return conditions(document(name)["machine"])


def collators(*suites: str, other: str = "transformers") -> None:
    """Cases of two collators: alternately, which leaves the caches cold, and each alone, with warm caches."""
    put(
        f"| {other} | quadrat | speed-up, cold caches | its quartiles | speed-up, warm caches",
        (case for suite in suites for case in load(suite)),
        *(fact("case"), *BOTH),
        lambda case: " to ".join(map(times, measured(case, "transformers", "ratio_quartiles"))),
        lambda case: times(measured(case, "transformers", "warm_ns") / measured(case, "quadrat", "warm_ns")),
    )
    for suite in suites:
        where = f"`{load(suite)[-1]['case']}`: " if suite != suites[0] else ""
        print(f"\n{where}{measured_on(suite)}")


def growth() -> None:
    rows = crossed(load("growth", "batches"), "tokens", "kind")

    def cost(side: str, kind: str) -> Cell:
        return lambda row: f"{amount / row['tokens']:.2f}" if (amount := measured(row[kind], side)) else ""

    lines = [(side, kind) for side in SIDES[::-1] for kind in ("lists", "numpy")]
    headings = " | ".join(f"{side}, {kind}" for side, kind in lines)
    put(f"tokens in the batch | {headings}", rows, fact("tokens"), *(cost(*line) for line in lines), texts=0)


def columns() -> None:
    put("columns | transformers | quadrat | speed-up", load("growth", "columns"), fact("columns"), *BOTH, texts=0)


def dataloader() -> None:
    headings = "| workers | transformers, batches/s | quadrat, batches/s | speed-up"
    cells = fact("workers"), *map(rate, SIDES), gain("transformers")
    put(headings, load("dataloader"), lambda case: case["case"].rsplit(", ", 1)[0], *cells)


def streams() -> None:
    rows = [(case["case"], route, time(measured(case, route))) for case in load("streams") for route in case["ways"]]
    put("what | route | time", rows, texts=2)


def threads() -> None:
    places = {"without the GIL": "threads_without_gil", "with the GIL": "threads"}

    def best(way: str) -> Cell:
        return lambda case: f"{1e9 / measured(case, way, 'min_ns'):,.0f}"

    put(
        "batches | | 1 thread | 2 threads | 2 workers | 2 threads over 1",
        ({"gil": gil, **case} for gil, name in places.items() for case in load(name)),
        *(fact("case"), fact("gil"), *map(best, ("1 thread", "2 threads", "2 workers"))),
        lambda case: f"{measured(case, '1 thread', 'min_ns') / measured(case, '2 threads', 'min_ns'):.2f}{TIMES}",
        texts=2,
    )
    for gil, name in places.items():
        facts = document(name)["machine"]
        of = versions(facts, "torch", "numpy", "pyarrow")
        print(f"\n{gil[0].upper()}{gil[1:]}: Python {facts['python']}, {of}; {facts['cores']} cores.")


def jobs() -> None:
    def row(case: Record) -> list[str]:
        other = next((way for way in case["ways"] if way != "quadrat"), "")
        return [case["case"], f"{case['rows']:,}", other, *(cell(case) for cell in against(other))]

    put("job | rows | compared with | its time | quadrat | speed-up", map(row, load("batching", "times")))


def plans() -> None:
    put(
        "plan | rows | batches or packs | fewest possible | fill | padding",
        load("batching", "plans"),
        lambda case: case["case"].removeprefix("plan: "),
        *map(fact, ("rows", "batches", "fewest")),
        lambda case: f"{case['fill']:.3f}",
        lambda case: share(case["padding"]),
    )


def unpad() -> None:
    ways = ("lengths", "mask", "indexing")
    cells = *map(fact, ("tokens", "rows", "inner")), *(ratio(way, 1) for way in ways)
    put(f"tokens | rows | numbers a token | {' | '.join(ways)}", load("unpad"), *cells, texts=0)


def bandwidth() -> None:
    def speed(way: str) -> Cell:
        return lambda case: f"{case['bytes'] / measured(case, way):,.0f}"

    cells = fact("case"), taken("quadrat"), speed("quadrat"), speed("copy")
    headings = "| time | GB/s | copy, GB/s | share of a copy's speed"
    put(headings, load("cuda", "bandwidth"), *cells, lambda case: share(measured(case, "copy", "ratio")))


def kernels() -> None:
    def row(case: Record) -> list[str]:
        other, ours = (measured(case, way, "graph_ns") for way in ("torch", "quadrat"))
        graph = [f"{other / 1e3:.1f} µs", f"{ours / 1e3:.1f} µs", times(other / ours)] if ours and other else [""] * 3
        return [case["of"], case["other"], *(cell(case) for cell in against("torch")), *graph]

    of = "its time | quadrat | speed-up"
    put(f"case | compared with | {of} | in a CUDA graph: {of}", map(row, load("cuda", "compare")), texts=2)


def deferred() -> None:
    through = {case["workers"]: case for case in load("deferred", "embedding")}
    put(
        'workers | transformers, `.to("cuda")` | quadrat, `.to("cuda")` | quadrat, deferred | speed-up, deferred '
        "| the same with an encoder",
        load("deferred", "loading"),
        *(fact("workers"), *map(rate, (*SIDES, "deferred")), gain("transformers")),
        lambda case: gain("transformers")(through[case["workers"]]),
        texts=0,
    )


def usual(cases: list[Record], job: str) -> dict[str, Record]:
    """The cases of a job with the usual batch, by the kind of its rows."""
    chosen = [case for case in cases if (case["job"], case["rows"], case["longest"]) == (job, *USUAL)]
    return {case["input"]: case for case in chosen}


def peers(job: str) -> None:
    """Each way's time, and the speed-up of quadrat over it, by kind of rows, for the usual batch."""
    cases = usual(load("peers"), job)
    ways = list(cases["lists"]["ways"])
    kinds = " | ".join(cases)
    put(f"time | {kinds}", ways, str, *(lambda way, case=case: taken(way)(case) for case in cases.values()))
    print()
    gains = [lambda way, case=case: gain(way)(case) for case in cases.values()]
    put(f"speed-up of quadrat over | {kinds}", ways[:-1], str, *gains)
    timed = [result for case in cases.values() for result in case["ways"].values() if "ratio_quartiles" in result]
    widths = [(result["ratio_quartiles"][1] - result["ratio_quartiles"][0]) / 2 / result["ratio"] for result in timed]
    print(
        f"\n{measured_on('peers')} A speed-up is the median of the ratios of single calls. In nine of ten comparisons, "
        f"its quartiles are within {share(quantiles(widths, n=10)[-1])} of it."
    )


def grid(job: str, way: str) -> None:
    """The speed-up of quadrat over a way, for each size of batch and kind of rows."""
    cases = [case for case in load("peers") if case["job"] == job and way in case["ways"]]
    kinds = dict.fromkeys(case["input"] for case in cases)
    gains = (lambda size, kind=kind: gain(way)(size.get(kind)) for kind in kinds)
    cells = *map(fact, ("rows", "longest", "tokens")), *gains
    put("rows | longest | tokens | " + " | ".join(kinds), crossed(cases, "tokens", "input"), *cells, texts=0)


def behind() -> None:
    """The comparisons of all benchmarks in which quadrat takes longer than another way by a tenth or more."""
    text = "{job} of {input}, {rows} \N{MULTIPLICATION SIGN} {longest:,} tokens"
    named = [(text.format(**case), case) for case in load("peers")]
    named += [(case["case"], case) for case in load("batching", "times")]
    for case in load("cuda", "compare"):
        named.append((f"GPU: {case['of']}", {"ways": {case["other"]: case["ways"]["torch"]}}))
    all_of = [(text, way, row["ratio"]) for text, case in named for way, row in case["ways"].items() if "ratio" in row]
    slower = [comparison for comparison in all_of if comparison[2] < 1]
    print(f"In {len(slower)} of {len(all_of):,} comparisons, another way is faster; in these by a tenth or more:\n")
    slower = [(text, way, f"{ratio:.2f}") for text, way, ratio in slower if ratio < 0.9]
    put("case | faster | its time / quadrat's", slower, texts=2)


def old_major() -> None:
    cases = [case for case in load("peers_4") if case["job"] == "padding"]
    lines = {"padding, time": BOTH[0], "padding, speed-up of quadrat": BOTH[2]}
    cells = [lambda name, case=case: lines[name](case) for case in cases]
    put("transformers 4.57 | " + " | ".join(case["input"] for case in cases), lines, str, *cells)
    print(f"\n{measured_on('peers_4')}")


WAYS = {
    "transformers": "transformers, random batches",
    "quadrat": "quadrat, the same batches",
    "budget": "quadrat, token budget",
}


def sooner(row: Record) -> str:
    return f"{1 / row.get('ratio', 1):.2f}{TIMES}"


def loop(*, model: bool) -> None:
    chosen = [case for case in load("loop") if case["model"] is model]
    put(
        "| workers | samples/s | CPU seconds per epoch | computed / real tokens | speed-up",
        ({**case, **case["ways"][way], "way": text} for case in chosen for way, text in WAYS.items()),
        *(fact("way"), fact("workers")),
        lambda row: f"{row['samples'] * 1e9 / row['ns']:,.0f}",
        lambda row: f"{row['cpu_ns'] / 1e9:.1f}",
        lambda row: f"{row['computed_per_token']:.2f}",
        sooner,
    )
    print(f"\n{measured_on('loop')}")


def demo() -> None:
    """The table that `make demo` printed, without what the README has no room for."""
    lines = (RESULTS.parents[1] / "docs/examples/classify_packages.txt").read_text(encoding="utf-8").splitlines()
    first = next(at for at, line in enumerate(lines) if line.split() == ["quadrat,"] * 2)
    end = next(at for at, line in enumerate(lines) if line.lstrip().startswith("steps with the same loss"))
    left_out = ("training steps", "collation", "CPU seconds", "loss on")
    shown = [line.rstrip() for line in lines[first : end + 1] if not line.lstrip().startswith(left_out)]
    print("\n".join(["```text", "...", *shown, "...", "```"]))


def front() -> None:
    """The table of the README: padding as in its picture, masking, then the whole loop."""
    padding = usual(load("peers"), "padding")
    language, arrow = ({case["case"]: case for case in load(name)} for name in ("language", "arrow"))
    (epoch,) = (case["ways"] for case in load("loop") if case["model"] and case["workers"] == 0)
    rows = {
        "pad, Python lists": padding["lists"],
        "pad, an unchanged `datasets.Dataset`": padding["Dataset"],
        "mask for MLM, Python lists": language["masked language modelling"],
        "mask for MLM, an unchanged `datasets.Dataset`": arrow["fetch and mask"],
    }
    lines = [[text, *(cell(case) for cell in BOTH)] for text, case in rows.items()]
    labels = {"quadrat": "the same batches", "budget": "batches by token budget"}
    for way, text in labels.items():
        spent = [f"{epoch[each]['ns'] / 1e9:.1f} s" for each in ("transformers", way)]
        lines.append([f"an epoch of training, {text}", *spent, sooner(epoch[way])])
    put("| transformers | quadrat | speed-up", lines)
    print(f"\n{measured_on('peers')}")
    print("CPU caches are cold; with warm ones, speed-ups are higher. They vary between runs by up to two times.")
    floor, of_arrays = (gain("NumPy, ten lines")(padding[kind]) for kind in ("lists", "NumPy arrays"))
    print(f"""
A collator of ten lines of NumPy is also faster than transformers, which spends nearly all of its time on converting
lists to tensors. The speed-up of quadrat over these ten lines is {floor} for lists and {of_arrays} for NumPy \
arrays.""")
