"""Oracles of kernels that say which rows go together."""

from collections.abc import Sequence
from typing import Any

from numpy.typing import NDArray

Array = NDArray[Any]


def pack_rows(
    lengths: Sequence[int], max_length: int, fit: str, counts: Sequence[int] | None = None, max_count: int = 0
) -> list[list[int]]:
    """The rows of each pack: "best" fit decreasing, "first" fit decreasing, or "in_order"; with room for counts too.

    Of the packs with the least room for a row, and of those with the least for its count, best fit takes the one that
    has had this room for the longest time.
    """
    counts = [0] * len(lengths) if counts is None else counts
    packs: list[list[int]] = []
    room: list[tuple[int, int]] = []
    since: list[int] = []  # the step at which the pack got the room it has
    order = range(len(lengths)) if fit == "in_order" else sorted(range(len(lengths)), key=lambda row: -lengths[row])
    for step, row in enumerate(order):
        fitting = [at for at, (tokens, left) in enumerate(room) if tokens >= lengths[row] and left >= counts[row]]
        if fit == "in_order":
            fitting = fitting[-1:] if fitting[-1:] == [len(packs) - 1] else []
        if not fitting:
            packs.append([])
            room.append((max_length, max_count))
            since.append(step)
            fitting = [len(packs) - 1]
        pack = min(fitting, key=lambda pack: (room[pack], since[pack])) if fit == "best" else fitting[0]
        packs[pack].append(row)
        room[pack] = (room[pack][0] - lengths[row], room[pack][1] - counts[row])
        if lengths[row] or counts[row]:
            since[pack] = step
    return packs


def _cost(lengths: Sequence[int], multiple_of: int, padded: bool) -> int:
    """The tokens of a batch of rows of these lengths, padded or one after the other."""
    rows, tokens = (len(lengths), max(lengths)) if padded else (1, sum(lengths))
    return rows * (-(-tokens // multiple_of) * multiple_of)


def plan_batches(
    lengths: Sequence[int], order: Sequence[int], budget: tuple[int, int, int, bool], window: int
) -> list[list[int]]:
    """The rows of each batch: from windows of the order, sorted from the longest to the shortest row and back.

    budget: the tokens and the rows that a batch may have, the multiple it is padded to, and whether rows are padded.
    """
    tokens, most_rows, multiple_of, padded = budget
    batches: list[list[int]] = []
    for number, first in enumerate(range(0, len(order), window)):
        rows = sorted(order[first : first + window], key=lambda row: -lengths[row])
        for row in rows if number % 2 == 0 else reversed(rows):
            batch = [*batches[-1], row] if batches else []
            if 0 < len(batch) <= most_rows and _cost([lengths[i] for i in batch], multiple_of, padded) <= tokens:
                batches[-1] = batch
            else:
                batches.append([row])
    return batches


def balance_batches(
    lengths: Sequence[int],
    batches: Sequence[list[int]],
    budget: tuple[int, int, int, bool],
    ranks: int,
    *,
    steps: int,
    step_order: Sequence[int] | None,
) -> list[list[list[int]]]:
    """The batches of each step, one per rank: of like costs.

    Where there are too few, some are split; where there are too many, the cheapest are dropped. Without a `step_order`,
    steps come in the order of their first rows.
    """

    def cost(batch: list[int]) -> int:
        return _cost([lengths[row] for row in batch], budget[2], budget[3])

    def costliest_first() -> list[int]:
        return sorted(range(len(parts)), key=lambda number: -cost(parts[number]))

    parts = list(batches)
    numbers = costliest_first()
    missing = steps * ranks - len(parts)
    if missing <= 0:
        numbers = numbers[: steps * ranks]
    else:
        pool = numbers[::-1][: len(parts) % ranks + missing // ranks * ranks]
        for _ in range(missing):
            splitting = [number for number in pool if len(parts[number]) > 1]
            if not splitting:
                splitting = [number for number in numbers if number not in pool and len(parts[number]) > 1][-1:]
                pool += splitting
            if splitting:
                number = max(splitting, key=lambda number: (cost(parts[number]), -number))
                middle = (len(parts[number]) + 1) // 2
                pool.append(len(parts))
                parts.append(parts[number][middle:])
                parts[number] = parts[number][:middle]
        numbers = costliest_first()
        numbers += [numbers[-1 - i % len(numbers)] for i in range(steps * ranks - len(numbers))]
    place = {row: i for i, row in enumerate(row for batch in batches for row in batch)}
    made_steps = [numbers[first : first + ranks] for first in range(0, len(numbers), ranks)]
    if step_order is None:
        made_steps.sort(key=lambda step: min(place[parts[number][0]] for number in step))
    else:
        made_steps = [made_steps[step] for step in step_order]
    return [[parts[step[(rank - t) % ranks]] for rank in range(ranks)] for t, step in enumerate(made_steps)]
