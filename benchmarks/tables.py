"""The tables of README and docs, from the JSON in benchmarks/results.

    python -m cogapp -P -r -I benchmarks README.md docs/performance/*.md          writes them anew
    python -m cogapp -P --check -I benchmarks README.md docs/performance/*.md     fails where one differs

A page calls a function of this module between `[[[cog` and `[[[end]]]`; cog puts the text below it.
"""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from tabulate import tabulate

TIMES = "\N{MULTIPLICATION SIGN}"
RESULTS = Path(__file__).parent / "results"
# The collators as the results name them.
SIDES = {"quadrat": "quadrat", "reference": "transformers"}


def load(name: str) -> dict[str, Any]:
    """The results of a benchmark."""
    return json.loads((RESULTS / f"{name}.json").read_text())  # type: ignore[no-any-return]


def time(nanoseconds: float | None) -> str:
    """A time with three digits, in the unit that it needs."""
    if nanoseconds is None:
        return ""
    for unit, size in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if nanoseconds >= size or unit == "µs":
            value = nanoseconds / size
            return f"{value:,.0f} {unit}" if value >= 100 else f"{value:.3g} {unit}"
    raise AssertionError


def times(ratio: float | None) -> str:
    """A ratio of two times."""
    if ratio is None:
        return ""
    return f"{ratio:,.0f}{TIMES}" if ratio >= 10 else f"{ratio:.1f}{TIMES}"


def number(value: float | None) -> str:
    """A count, with separators, or nothing."""
    return "" if value is None else f"{value:,}"


def share(value: float) -> str:
    """A part of one, in percent."""
    return f"{value:.1%}" if value < 0.1 else f"{value:.0%}"


def put(headings: str, rows: Iterable[Sequence[str]], *, texts: int = 1) -> None:
    """Print a Markdown table; `headings` are separated by bars, and the first `texts` columns are text."""
    names = [name.strip() for name in headings.split("|")]
    sides = ["left" if place < texts else "right" for place in range(len(names))]
    print(tabulate(list(rows), names, tablefmt="pipe", colalign=sides, disable_numparse=True))


def conditions(facts: dict[str, Any]) -> str:
    """One sentence on the machine and the versions."""
    where = f"{facts['cpu']} (family {facts['cpu_family']}, model {facts['cpu_model']}), {facts['cores']} cores"
    versions = ", ".join(f"{name} {facts[name]}" for name in ("torch", "transformers", "trl", "numpy") if name in facts)
    return f"Medians, one thread; {where}; Python {facts['python']}, {versions}."


def collators(*suites: str, other: str = "transformers") -> None:
    """Suites of `report.py`: both sides alternately, which leaves the caches cold, and each alone, with warm caches."""
    results = [load(suite) for suite in suites]
    rows = [
        (
            case["description"],
            time(case["reference_median_ns"]),
            time(case["quadrat_median_ns"]),
            times(case["median_of_ratios"]),
            " to ".join(times(quartile) for quartile in case["ratio_quartiles"]),
            times(case["ratio_alone"]),
        )
        for result in results
        for case in result["cases"]
    ]
    put(f"| {other} | quadrat | speed-up, cold caches | its quartiles | speed-up, warm caches", rows)
    for result in results:
        where = f"`{result['cases'][-1]['description']}`: " if result is not results[0] else ""
        print(f"\n{where}{conditions(result['machine'])}")


def limit() -> None:
    """Padding beside a memcpy and a fill."""
    put(
        "tokens | rows | Arrow values | memcpy and fill | padding | padding / limit",
        (
            (
                number(size["tokens"]),
                number(size["rows"]),
                size["arrow"],
                time(size["limit_ns"]),
                time(size["collator_ns"]),
                f"{size['ratio']:.2f}",
            )
            for size in load("limit")["sizes"]
        ),
        texts=0,
    )


def audio(part: str) -> None:
    """A batch of clips, or a call of each extractor: the fastest gain first, and which were not timed."""
    result = load("audio")
    timed = {name: one for name, one in result[part].items() if isinstance(one, dict)}
    order = timed if part == "batches" else sorted(timed, key=lambda name: -timed[name]["speed_up"])
    put(
        "| transformers | quadrat | speed-up",
        (
            (
                name.removesuffix("FeatureExtractor"),
                *(time(timed[name][side] * 1e6) for side in ("transformers", "quadrat")),
                times(timed[name]["speed_up"]),
            )
            for name in order
        ),
    )
    print(f"\n{conditions(result['machine'])}\n" if part == "batches" else "\nNot timed:\n")
    for name, why in result[part].items():
        if name not in timed:
            print(f"- {name.removesuffix('FeatureExtractor')}: {why}")


def growth() -> None:
    """Nanoseconds a token, by collator and kind of rows."""
    cells = {
        (one["tokens"], one["collator"], one["kind"]): f"{one['ns_per_token']:.2f}" for one in load("growth")["batches"]
    }
    columns = [(collator, kind) for collator in ("quadrat", "reference") for kind in ("lists", "numpy")]
    put(
        "tokens in the batch | " + " | ".join(f"{SIDES[collator]}, {kind}" for collator, kind in columns),
        (
            (number(tokens), *(cells.get((tokens, *column), "") for column in columns))
            for tokens in sorted({tokens for tokens, _, _ in cells})
        ),
        texts=0,
    )


def columns() -> None:
    """The time of a batch, by its number of columns."""
    found = {(one["columns"], one["collator"]): one["median_ns"] for one in load("growth")["columns"]}
    put(
        "columns | transformers | quadrat | speed-up",
        (
            (str(count), *(time(found[count, name]) for name in ("reference", "quadrat")),
             times(found[count, "reference"] / found[count, "quadrat"]))
            for count in sorted({count for count, _ in found})
        ),
        texts=0,
    )  # fmt: skip


def dataloader() -> None:
    """Batches a second that a DataLoader gives."""
    put(
        "| workers | transformers, batches/s | quadrat, batches/s | speed-up",
        (
            (
                case["description"],
                str(case["workers"]),
                f"{case['reference_batches_per_second']:,.0f}",
                f"{case['quadrat_batches_per_second']:,.0f}",
                times(case["median_of_ratios"]),
            )
            for case in load("dataloader")["cases"]
        ),
    )


def streams() -> None:
    """Times of rows of streams and of batches from workers, by route."""
    found = load("streams")["microseconds"]
    put(
        "what | route | time",
        ((what, route, time(value * 1e3)) for what, routes in found.items() for route, value in routes.items()),
        texts=2,
    )


def threads() -> None:
    """Batches a second of threads and of worker processes, with and without the GIL."""
    results = load("threads")
    put(
        "batches | | 1 thread | 2 threads | 2 workers | 2 threads over 1",
        (
            (job, gil, *map(number, found["batches_per_second"].values()), f"{found['two_threads_to_one']:.2f}{TIMES}")
            for gil, result in results.items()
            for job, found in result["jobs"].items()
        ),
        texts=2,
    )
    for gil, result in results.items():
        facts = result["machine"]
        versions = ", ".join(f"{name} {facts[name]}" for name in ("torch", "numpy", "pyarrow"))
        print(f"\n{gil[0].upper()}{gil[1:]}: Python {facts['python']}, {versions}; {facts['cores']} cores.")


def jobs() -> None:
    """Times of samplers and packing."""
    put(
        "job | rows | compared with | its time | quadrat | speed-up",
        (
            (
                job["job"],
                number(job["rows"]),
                job["reference"],
                time(job["reference_ns"]),
                time(job["quadrat_ns"]),
                times(job["ratio"]),
            )
            for job in load("batching")["times"]
        ),
    )


def plans() -> None:
    """How full batches and packs are."""
    put(
        "plan | rows | batches or packs | fewest possible | fill | padding",
        (
            (
                plan["plan"],
                number(plan["rows"]),
                number(plan["batches"]),
                number(plan["fewest"]),
                f"{plan['fill']:.3f}",
                share(plan["padding"]),
            )
            for plan in load("batching")["plans"]
        ),
    )


def containers() -> None:
    """Trainer's container beside quadrat's."""
    result = load("gather")
    found = {(one["steps"], bool(one["every"])): one for one in (*result["steps"], *result["containers"])}

    def cells(one: dict[str, Any] | None) -> list[str]:
        return [time(one.get("reference_ns")), time(one["quadrat_ns"]), times(one.get("ratio"))] if one else [""] * 3

    put(
        "steps | transformers | quadrat | speed-up | transformers, every 20 | quadrat, every 20 | speed-up",
        (
            (number(steps), *cells(found.get((steps, False))), *cells(found.get((steps, True))))
            for steps in sorted({steps for steps, _ in found})
        ),
        texts=0,
    )


def unpad() -> None:
    """`unpad` beside a memcpy of the tokens that it keeps."""
    names = ("lengths_to_memcpy", "mask_to_memcpy", "indexing_to_memcpy")
    put(
        "tokens | rows | numbers a token | lengths | mask | indexing",
        (
            (number(one["tokens"]), number(one["rows"]), str(one["inner"]), *(f"{one[name]:.1f}" for name in names))
            for one in load("gather")["unpad"]
        ),
        texts=0,
    )


def bandwidth(name: str) -> None:
    """Kernels beside a copy of the same bytes."""
    put(
        "| time | GB/s | copy, GB/s | share of a copy's speed",
        (
            (
                case["case"],
                time(case["microseconds"] * 1e3),
                f"{case['gigabytes_per_second']:,.0f}",
                f"{case['copy_gigabytes_per_second']:,.0f}",
                share(case["share_of_copy"]),
            )
            for case in load(name)["bandwidth"]
        ),
    )


def kernels() -> None:
    """Kernels beside what else does the same on a GPU."""

    def graphed(case: dict[str, Any]) -> list[str]:
        own, other = case.get("graph_microseconds"), case.get("other_graph_microseconds")
        return [""] * 3 if own is None else [f"{other:.1f} µs", f"{own:.1f} µs", times(case["graph_ratio"])]

    put(
        "case | compared with | its time | quadrat | speed-up | in a CUDA graph: its time | quadrat | speed-up",
        (
            (
                case["case"],
                case["other"],
                time(case["other_microseconds"] * 1e3),
                time(case["microseconds"] * 1e3),
                times(case["ratio"]),
                *graphed(case),
            )
            for case in load("cuda")["compare"]
        ),
        texts=2,
    )


def bert_padding(name: str) -> None:
    """`unpad_input` and `pad_input` beside plain PyTorch."""
    put(
        "| | plain PyTorch | quadrat | speed-up",
        (
            (one["case"], one["size"], time(one["plain_ns"]), time(one["quadrat_ns"]), times(one["ratio"]))
            for one in load(name)["bert_padding"]
            if "+" in one["case"] or one["case"] == "unpad_many"
        ),
        texts=2,
    )


def block_masks() -> None:
    """`document_block_mask` beside `create_block_mask`, on a CPU and a GPU."""
    put(
        "| tokens | documents | window | `create_block_mask` | compiled | quadrat | speed-up over compiled",
        (
            (
                place,
                number(one["tokens"]),
                number(one["documents"]),
                number(one["window"]),
                time(one["eager_ns"]),
                time(one["compiled_ns"]),
                time(one["quadrat_ns"]),
                times(one["compiled_ratio"]),
            )
            for place, name in (("CPU", "varlen_masks"), ("GPU", "varlen_masks_cuda"))
            for one in load(name)["masks"]
        ),
    )


def context_parallel(sequences: int = 512) -> None:
    """The functions of context parallelism beside plain PyTorch."""
    put(
        "| sequences | plain PyTorch | quadrat | speed-up",
        (
            (
                f"{place}, `{one['function']}`",
                number(one["sequences"]),
                time(one["plain_ns"]),
                time(one["quadrat_ns"]),
                times(one["plain_ratio"]),
            )
            for place, name in (("CPU", "varlen_masks"), ("GPU", "varlen_masks_cuda"))
            for one in load(name)["context_parallel"]
            if one["sequences"] == sequences
        ),
    )


def deferred() -> None:
    """Batches a second of a pinned DataLoader, padded on the GPU or before."""
    result = load("deferred")
    through = {one["workers"]: one["deferred_to_reference"] for one in result["embedding"]}
    put(
        'workers | transformers, `.to("cuda")` | quadrat, `.to("cuda")` | quadrat, deferred | speed-up, deferred '
        "| the same with an encoder",
        (
            (
                str(one["workers"]),
                *(f"{one['batches_per_second'][side]:,.0f}" for side in ("reference", "quadrat", "deferred")),
                times(one["deferred_to_reference"]),
                times(through[one["workers"]]),
            )
            for one in result["loading"]
        ),
        texts=0,
    )
