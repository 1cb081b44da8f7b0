"""The tables of what peers.py and loop.py measured, and the one of the README; see tables.py."""

from collections.abc import Iterator
from statistics import quantiles
from typing import Any

from tables import TIMES, conditions, load, number, put, share, time, times

USUAL = (32, 512)
PLACES = (("CPU", ""), ("GPU", "_cuda"))


def _cells(job: str, name: str = "peers") -> list[dict[str, Any]]:
    return [one for one in load(name)["cells"] if one["job"] == job]


def peers(job: str) -> None:
    """Each way's time, and the speed-up of quadrat over it, by kind of rows, for the usual batch."""
    chosen = [one for one in _cells(job) if (one["rows"], one["longest"]) == USUAL]
    kinds = list(dict.fromkeys(one["input"] for one in chosen))
    found = {(one["way"], one["input"]): one for one in chosen}
    ways = list(dict.fromkeys(one["way"] for one in chosen))
    for name, cell, shown in (("time", time, ways), ("speed-up of quadrat over", times, ways[:-1])):
        measured = {"time": "ns"}.get(name, "ratio")
        rows = [(way, *(cell(found.get((way, kind), {}).get(measured)) for kind in kinds)) for way in shown]
        put(f"{name} | " + " | ".join(kinds), rows)
        print()
    print(f"{conditions(load('peers')['machine'])} {_spread(chosen)}")


def _spread(cells: list[dict[str, Any]]) -> str:
    """How far apart the quartiles of the ratios are."""
    widths = [(high - low) / 2 / one["ratio"] for one in cells for low, high in [one["ratio_quartiles"]] if high > low]
    return (
        "A speed-up is the median of the ratios of single calls. In nine of ten comparisons, its quartiles are within "
        f"{share(quantiles(widths, n=10)[-1])} of it."
    )


def grid(job: str, way: str) -> None:
    """The speed-up of quadrat over a way, for each size of batch and kind of rows."""
    chosen = [one for one in _cells(job) if one["way"] == way]
    kinds = list(dict.fromkeys(one["input"] for one in chosen))
    found = {(one["rows"], one["longest"], one["input"]): times(one["ratio"]) for one in chosen}
    tokens = {(one["rows"], one["longest"]): one["tokens"] for one in chosen}
    put(
        "rows | longest | tokens | " + " | ".join(kinds),
        (
            (
                *map(number, (rows, longest, tokens[rows, longest])),
                *(found.get((rows, longest, kind), "") for kind in kinds),
            )
            for rows, longest in tokens
        ),
        texts=0,
    )


def differences() -> None:
    """The ways that make other tensors, if there are any."""
    found = sorted(
        {f"- {one['way']}, {one['job']}: {one['differs']}" for one in load("peers")["cells"] if one["differs"]}
    )
    print("\n".join(["These ways make other tensors:\n", *found]) if found else "All ways make the same tensors.")


def behind() -> None:
    """All comparisons of all benchmarks in which quadrat takes longer than another way."""
    comparisons = [
        *(
            (
                f"{one['job']} of {one['input']}, {one['rows']} {TIMES} {one['longest']:,} tokens",
                one["way"],
                one["ratio"],
            )
            for one in load("peers")["cells"]
            if one["way"] != "quadrat"
        ),
        *((job["job"], job["reference"], job["ratio"]) for job in load("batching")["times"] if job["ratio"]),
        *((f"GPU: {case['case']}", case["other"], case["ratio"]) for case in load("cuda")["compare"]),
        *(
            (f"{place}: {one['case']}, {one['size']}", "plain PyTorch", one["ratio"])
            for place, name in PLACES
            for one in load(f"varlen{name}")["bert_padding"]
        ),
        *(
            (f"{place}: block mask, {one['tokens']:,} tokens", "`create_block_mask`, compiled", one["compiled_ratio"])
            for place, name in PLACES
            for one in load(f"varlen_masks{name}")["masks"]
        ),
    ]
    slower = [(case, other, f"{ratio:.2f}") for case, other, ratio in comparisons if ratio and ratio < 1]
    print(f"In {len(slower)} of {len(comparisons):,} comparisons, another way takes less time than quadrat:\n")
    put("case | faster | its time / quadrat's", slower, texts=2)


def old_major() -> None:
    """transformers 4.57 beside quadrat."""
    kinds = list(dict.fromkeys(one["input"] for one in _cells("padding", "peers_4")))
    reference = [one for job in ("padding", "flattening") for one in _cells(job, "peers_4")]
    reference = [one for one in reference if one["way"] == "transformers"]
    jobs = dict.fromkeys(one["job"] for one in reference)
    put(
        "transformers 4.57 | " + " | ".join(kinds),
        (
            (f"{job}, {name}", *(cell(one[measured]) for one in reference if one["job"] == job))
            for job in jobs
            for name, cell, measured in (("time", time, "ns"), ("speed-up of quadrat", times, "ratio"))
        ),
    )
    print(f"\n{conditions(load('peers_4')['machine'])}")


WAYS = {
    "transformers": "transformers, random batches",
    "quadrat": "quadrat, the same batches",
    "grouped": "quadrat, grouped by length",
    "budget": "quadrat, token budget",
}


def loop(*, model: bool) -> None:
    """Samples per second and CPU time of the whole loop."""
    put(
        "| workers | samples/s | CPU seconds per epoch | computed / real tokens | speed-up",
        (
            (
                WAYS[one["way"]],
                str(one["workers"]),
                f"{one['samples_per_second']:,.0f}",
                f"{one['cpu_seconds']:.1f}",
                f"{one['computed_per_token']:.2f}",
                f"{one['ratio']:.2f}{TIMES}",
            )
            for one in load("loop")["results"]
            if one["model"] is model
        ),
    )
    print(f"\n{conditions(load('loop')['machine'])}")


def front() -> None:
    """The table of the README: padding as in its picture, masking, then the whole loop."""
    usual = [one for one in _cells("padding") if (one["rows"], one["longest"]) == USUAL]
    ways = {(one["way"], one["input"]): one for one in usual}

    def rows() -> Iterator[tuple[str, ...]]:
        for kind, text in (
            ("lists", "Python lists"),
            ("Dataset", "an unchanged `datasets.Dataset`"),
            ("ArrowDataset", "`quadrat.ArrowDataset`"),
        ):
            reference = ways["transformers", kind]
            yield f"pad, {text}", time(reference["ns"]), time(ways["quadrat", kind]["ns"]), times(reference["ratio"])
        cases = {case["case"]: case for name in ("language", "arrow") for case in load(name)["cases"]}
        for name, text in (("mlm", "Python lists"), ("usual_mlm", "an unchanged `datasets.Dataset`")):
            case = cases[name]
            medians = time(case["reference_median_ns"]), time(case["quadrat_median_ns"])
            yield f"mask for MLM, {text}", *medians, times(case["median_of_ratios"])
        found = {(one["way"], one["workers"]): one for one in load("loop")["results"] if one["model"]}
        reference = found["transformers", 0]
        for way, text in (
            ("quadrat", "an epoch of training, the same batches"),
            ("grouped", "an epoch of training, grouped by length"),
            ("budget", "an epoch of training, batches by token budget"),
        ):
            one = found[way, 0]
            spent = [f"{each['samples'] / each['samples_per_second']:.1f} s" for each in (reference, one)]
            yield text, *spent, f"{one['ratio']:.2f}{TIMES}"

    put("| transformers | quadrat | speed-up", rows())
    print(f"\n{conditions(load('peers')['machine'])}")
    print("CPU caches are cold; with warm ones, speed-ups are higher. They vary between runs by up to two times.")
    floor, of_arrays = (ways["NumPy, ten lines", kind]["ratio"] for kind in ("lists", "NumPy arrays"))
    print(f"""
A collator of ten lines of NumPy is also faster than transformers, which spends nearly all of its time on converting
lists to tensors. The speed-up of quadrat over these ten lines is {times(floor)} for lists and {times(of_arrays)} for \
NumPy arrays.""")
