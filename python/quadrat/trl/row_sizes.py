"""The columns that rows of prompts and completions take, and how rows share micro-batches."""

from typing import NamedTuple

import numpy as np
import torch

from quadrat.support.arrays import IntArray

_MOST_ROWS = 512  # for which the best split is looked for


class Sizes(NamedTuple):
    """Of each row: the columns of its prompt and of its completion, to the first and the last that is not masked."""

    prompts: IntArray
    completions: IntArray

    def order(self) -> IntArray:
        """The rows in order of length, the longest first."""
        return np.argsort(-self.prompts - self.completions, kind="stable")


def sizes_of(mask: torch.Tensor, completion_width: int, multiple: int | None = None) -> Sizes:
    """The sizes of the rows of a mask, `[rows, columns]`, rounded up to a multiple as far as there are columns."""
    used, width, multiple = mask != 0, mask.size(1) - completion_width, multiple or 1
    left, right = used[:, :width].int(), used[:, width:].flip(1).int()
    first = left.argmax(1)  # 0 for a prompt without a token: its last column then decides about the first new token
    after = torch.where(right.any(1), right.argmax(1), completion_width - 1)  # one column at least
    found = torch.stack([width - first, completion_width - after]).cpu().numpy()  # one wait for a device
    return Sizes(*np.minimum(-(-found // multiple) * multiple, [[width], [completion_width]]))


def split_by_tokens(prompts: IntArray, completions: IntArray, count: int, most_tokens: int) -> list[int]:
    """The rows of each of `count` micro-batches that compute the fewest tokens together, each at most `most_tokens`.

    `prompts` and `completions`, `[rows]`, are the columns of each row, in the order of the micro-batches. A micro-batch
    is padded to its widest prompt and its widest completion. `most_tokens` is at least what equal numbers of rows
    compute. If there are many rows, each micro-batch has the same number.
    """
    rows = len(prompts)
    if rows > _MOST_ROWS:
        return [rows // count + (one < rows % count) for one in range(count)]
    cost = np.full((rows, rows + 1), np.inf)  # of a micro-batch from one row to before another
    for first in range(rows):
        widths = np.maximum.accumulate(prompts[first:]) + np.maximum.accumulate(completions[first:])
        cost[first, first + 1 :] = widths * np.arange(1, rows - first + 1)
    cost[cost > most_tokens] = np.inf
    best, before = cost[0], []
    for _ in range(count - 1):
        total = best[:rows, None] + cost
        before.append(total.argmin(0))
        best = total.min(0)
    ends = [rows]
    for starts in reversed(before):
        ends.append(int(starts[ends[-1]]))
    return [last - first for last, first in zip(ends, [*ends[1:], 0], strict=True)][::-1]
