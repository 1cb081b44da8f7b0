"""The tables of docs/performance/padding.md: models that compute no padding. Made as those of tables.py."""

from typing import Any

from benchmarks.tables import SIDES, TIMES, Cell, Record, fact, load, measured, measured_on, put, ratio, taken

APART = "padding removed, nothing shared"


def speed_up(base: str = "transformers") -> Cell:
    """How many times as fast as another way; that over transformers is the median of the ratios in the same round."""

    def cell(case: Record | None) -> str:
        if case is None:
            return ""
        ratio = measured(case, "quadrat", "ratio") if base == "transformers" else None
        return f"{1 / (ratio or measured(case, 'quadrat') / measured(case, base)):.2f}{TIMES}"

    return cell


def environment(name: str) -> str:
    return "\n" + measured_on(name).replace("Medians, one thread;", "Medians;")


def by_share(cases: list[Record]) -> list[Record]:
    """Training with one thread, of batches that differ in their share of padding alone."""
    chosen = [case for case in cases if case.get("part") == "padding" and case["training"] and case["threads"] == 1]
    (size,) = {(case["model"], case["batch"]) for case in chosen if case["case"].startswith("BERT 4 x 256, 75 %")}
    return sorted((case for case in chosen if (case["model"], case["batch"]) == size), key=lambda case: case["padding"])


def shares() -> None:
    """What the picture shows."""
    cells = (lambda case: f"{case['padding']:.0%}", taken("transformers"), taken("quadrat"), speed_up())
    put("padding | transformers | padding removed | speed-up", by_share(load("remove_padding")), *cells)


def removed_padding(name: str = "remove_padding") -> None:
    """Models with and without padding, with one thread and with two."""
    rows: dict[tuple[Any, ...], dict[Any, Record]] = {}
    for case in load(name, "padding"):
        row = case["model"], case["batch"], f"{case['padding']:.0%}"
        rows.setdefault(row, {})[case["training"], case["threads"]] = case
    headings = "model | batch | padding | training | inference | training, two threads | inference, two threads | kept"
    lines = []
    for row, measures in rows.items():
        speeds = [speed_up()(measures.get(key)) for key in ((True, 1), (False, 1), (True, 2), (False, 2))]
        lines.append([*row, *speeds, f"{measures[True, 1]['kept']:.2f}"])
    put(headings, lines, texts=2)
    print(environment(name))


def shared_prompts() -> None:
    """Rows that begin with one prompt, beside padded rows and rows that share nothing."""
    put(
        "prompt | answers | tokens, up to | padded rows | padding removed | shared | over padded | over removed",
        load("remove_padding", "prompts"),
        *(fact(name) for name in ("prompt", "rows", "answer")),
        *(taken("transformers"), taken(APART), taken("quadrat"), speed_up(), speed_up(APART)),
        texts=0,
    )
    print(environment("remove_padding"))


def beside_other_ways() -> None:
    """Training beside rows that are sorted, and beside as many tokens without padding."""
    cases = [case for case in load("remove_padding", "padding") if len(case["ways"]) > len(SIDES)]
    others = ("rows sorted by length", "as many tokens, no padding")
    ways = ("transformers", "quadrat", *others)
    cells = [fact("model"), fact("batch"), lambda case: f"{case['padding']:.0%}", *map(taken, ways)]
    put("model | batch | padding | transformers | padding removed | sorted rows | limit", cases, *cells, texts=2)
    print(environment("remove_padding"))


def online() -> None:
    """An optimizer step of GRPO: tokens and time."""
    put(
        "prompts and completions | threads | tokens, TRL | tokens computed | share | TRL | quadrat | time",
        load("online"),
        *(lambda case: case["case"].rpartition(", ")[0], fact("threads"), fact("padded"), fact("computed")),
        lambda case: f"{case['computed'] / case['padded']:.2f}",
        *(taken("transformers"), taken("quadrat"), ratio("quadrat")),
    )
    print(environment("online"))
