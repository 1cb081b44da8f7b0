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
    """Each way's time, and how many times quadrat's that is, by kind of rows, for the usual batch."""
    chosen = [one for one in _cells(job) if (one["rows"], one["longest"]) == USUAL]
    kinds = list(dict.fromkeys(one["input"] for one in chosen))
    found = {(one["way"], one["input"]): one for one in chosen}

    def cell(one: dict[str, Any] | None) -> str:
        return "" if one is None else f"{time(one['ns'])}, {times(one['ratio'])}"

    ways = dict.fromkeys(one["way"] for one in chosen)
    put("way | " + " | ".join(kinds), ((way, *(cell(found.get((way, kind))) for kind in kinds)) for way in ways))
    print(f"\n{conditions(load('peers')['machine'])} {_spread(chosen)}")


def _spread(cells: list[dict[str, Any]]) -> str:
    """How far apart the quartiles of the ratios are."""
    widths = [(high - low) / 2 / one["ratio"] for one in cells for low, high in [one["ratio_quartiles"]] if high > low]
    return (
        f"In nine of ten comparisons, the quartiles of the ratio are within {share(quantiles(widths, n=10)[-1])} of it."
    )


def grid(job: str, way: str) -> None:
    """How many times quadrat's time a way takes, for each size of batch and kind of rows."""
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
    put(
        "job | " + " | ".join(kinds),
        (
            (job, *(f"{time(one['ns'])}, {times(one['ratio'])}" for one in reference if one["job"] == job))
            for job in dict.fromkeys(one["job"] for one in reference)
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
        "| workers | samples/s | CPU seconds per epoch | tokens computed per real token | ratio",
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
    """The table of the README: an unchanged data set, `ArrowDataset`, lists, then the whole loop."""

    def rows() -> Iterator[tuple[str, ...]]:
        cases = {case["case"]: case for name in ("pad", "language", "arrow") for case in load(name)["cases"]}
        for text, name in (
            ("pad, from an unchanged `datasets.Dataset`", "usual_pad"),
            ("mask for MLM, from an unchanged `datasets.Dataset`", "usual_mlm"),
            ("pad, from `quadrat.ArrowDataset`", "fetch_pad"),
            ("pad, Python lists", "pad_lists"),
            ("mask for MLM, Python lists", "mlm"),
        ):
            case = cases[name]
            medians = time(case["reference_median_ns"]), time(case["quadrat_median_ns"])
            yield text, *medians, times(case["median_of_ratios"])
        found = {(one["way"], one["workers"]): one for one in load("loop")["results"] if one["model"]}
        reference = found["transformers", 0]
        for way, text in (
            ("quadrat", "an epoch of training, the same batches"),
            ("grouped", "an epoch of training, `LengthGroupedSampler`"),
            ("budget", "an epoch of training, `TokenBudgetBatchSampler`"),
        ):
            one = found[way, 0]
            spent = [f"{each['samples'] / each['samples_per_second']:.1f} s" for each in (reference, one)]
            yield text, *spent, f"{one['ratio']:.2f}{TIMES}"

    put("| transformers | quadrat | times as fast", rows())
    print(f"\n{conditions(load('arrow')['machine'])}")
    print("CPU caches are cold, as in training; on a shared machine, ratios differ between runs by up to two times.")
    usual = [one for one in _cells("padding") if (one["rows"], one["longest"]) == USUAL]
    lists, arrays = ({one["way"]: one for one in usual if one["input"] == kind} for kind in ("lists", "NumPy arrays"))
    floor, of_arrays = lists["NumPy, ten lines"], arrays["NumPy, ten lines"]
    print(f"""
A collator of ten lines of NumPy is {times(lists["transformers"]["ns"] / floor["ns"])} as fast as transformers, which \
spends nearly all of its time on converting lists
to tensors. Against those ten lines, quadrat is {times(floor["ratio"])} as fast from lists and \
{times(of_arrays["ratio"])} from NumPy arrays, with cold caches.""")
