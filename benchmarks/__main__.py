"""Check and measure quadrat beside what it replaces, and write the results, from which the tables of the docs are made.

python -m benchmarks --list             the benchmarks
python -m benchmarks --list peers       the cases of one
python -m benchmarks pad language       measures; CUDA_VISIBLE_DEVICES= leaves the GPU out
"""

import argparse
import ast
import gc
import importlib
import json
import os
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import torch

from benchmarks import pictures
from benchmarks.measure import GPU, check, has_gil, machine, measure, slower, version
from benchmarks.tables import RESULTS, time, times

MODULES = {path.stem: path for path in sorted((Path(__file__).parent / "cases").glob("[!_]*.py"))}


def stored_as(name: str, use: str) -> str:
    """The name of a benchmark's results, which says where they were measured if that matters."""
    name += "_cuda" if GPU and use == "used" else ""
    name += "_4" if version("transformers").startswith("4.") else ""
    return name + ("" if has_gil() else "_without_gil")


def said(record: dict[str, Any]) -> str:
    """The ways of a record, each with its time, or whatever was measured, and its ratio; or the facts."""
    parts = []
    for name, found in record.get("ways", {}).items():
        what, value = next(iter(found.items()))
        shown = time(value) if what == "ns" else f"{value:,.0f} {what}"
        busy = found.get("busy_cpu_ratio")
        more = f"; the machine was busy: {times(busy)} of CPU time" if busy else ""
        parts.append(f"{name} {shown}" + (f" ({times(found['ratio'])}{more})" if "ratio" in found else ""))
    return ", ".join(parts) or ", ".join(f"{name} {value}" for name, value in record.items())


def run(name: str, options: argparse.Namespace) -> int:
    """Measure the cases of a benchmark and write them; 1 if quadrat is slower where it must not be."""
    # Other libraries' warnings and progress are no part of what is printed.
    os.environ |= {"HF_DATASETS_DISABLE_PROGRESS_BARS": "1", "TRANSFORMERS_VERBOSITY": "error"}
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    module = importlib.import_module(f"benchmarks.cases.{name}")
    setups = {text: make for text, make in module.cases(quick=options.quick).items() if options.only in text}
    found, lost = [], []
    for text, make in setups.items():
        if options.list:
            print(text)
            continue
        case = make()
        check(case)
        record = measure(case, options.effort)
        if not options.quick and slower(case, record):  # once more, for longer: another process may have run
            record = measure(case, 3 * options.effort)
            lost += [text] if slower(case, record) else []
        print(f"{name}: {text}: {said(record)}", flush=True)
        found.append({"case": text, **record})
        del case  # and its rows, before those of the next
        gc.collect()
    use = getattr(module, "GPU", "")
    # A selection must not replace the results of all cases.
    whole = not options.only and options.effort >= 1 and (GPU or use != "needed")
    out = options.out or (RESULTS if whole else None)
    if found and out is not None:
        out.mkdir(parents=True, exist_ok=True)
        store({"machine": machine(), "cases": found}, out / f"{stored_as(name, use)}.json")
        if not options.only:
            pictures.draw(stored_as(name, use), out)
    for text in lost:
        print("slower:", text)
    return int(bool(lost))


def store(document: dict[str, Any], path: Path) -> None:
    """Write results as JSON, a case a line, with seven digits of a number."""
    text = json.dumps(document, ensure_ascii=False)
    facts, cases = json.loads(text, parse_float=lambda number: float(f"{float(number):.7g}")).values()
    lines = ",\n".join(json.dumps(case, ensure_ascii=False) for case in cases)
    path.write_text(f'{{"machine": {json.dumps(facts)},\n"cases": [\n{lines}\n]}}\n', encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser("python -m benchmarks", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("names", nargs="*", metavar="NAME", help="benchmarks, each measured in a process of its own")
    parser.add_argument("--all", action="store_true", help="all that need no GPU, and with one all")
    parser.add_argument("--list", action="store_true", help="list the benchmarks, or the cases of those named")
    parser.add_argument("--only", default="", metavar="TEXT", help="the cases whose names have this text in them")
    parser.add_argument("--effort", type=float, default=1, help="a factor of rounds and times (default: 1)")
    parser.add_argument("--quick", action="store_true", help="one round, and small sizes: to see that all runs")
    parser.add_argument(
        "--out",
        type=lambda text: text and Path(text),
        help="folder of the results (default for whole benchmarks: results/)",
    )
    parser.add_argument("--draw", action="store_true", help="only draw the pictures of the results anew")
    options = parser.parse_args()
    options.effort = 0 if options.quick else options.effort
    if unknown := [name for name in options.names if name not in MODULES]:
        parser.error(f"unknown: {', '.join(unknown)}; there are {', '.join(MODULES)}")
    if options.draw:
        for name in pictures.PICTURES:
            pictures.draw(name, RESULTS)
        return 0
    if options.all:
        options.names = [name for name, path in MODULES.items() if GPU or 'GPU = "needed"' not in path.read_text()]
    if not options.names:
        for name, path in MODULES.items():
            print(f"{name:18}{(ast.get_docstring(ast.parse(path.read_text())) or '').splitlines()[0]}")
    if len(options.names) == 1:
        return run(*options.names, options)
    flags = [f"--only={options.only}", f"--effort={options.effort}", f"--out={options.out or ''}"]
    flags += [f"--{name}" for name in ("list", "quick") if getattr(options, name)]
    commands = [[sys.executable, "-m", "benchmarks", name, *flags] for name in options.names]
    return int(sum(subprocess.run(command, check=False).returncode != 0 for command in commands) > 0)


if __name__ == "__main__":
    sys.exit(main())
