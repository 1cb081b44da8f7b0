"""Oracles of kernels that move rows, or write what tells them apart."""

from collections.abc import Collection, Sequence
from typing import Any

from numpy.typing import NDArray

Array = NDArray[Any]


def copy_rows(rows: Sequence[Array], start: Sequence[int], out: Array) -> None:
    """Copy row i to `out[start[i] : start[i] + len(rows[i])]`, converted to the dtype of the flat array `out`."""
    for row, first in zip(rows, start, strict=True):
        for position, element in enumerate(row):
            out[first + position] = element


def check_offsets(offsets: Sequence[int], size: int) -> tuple[int | None, int, int]:
    """The first row that does not begin and end within `size` values, or None; the longest row, and its length."""
    if not 0 <= offsets[0] <= size:
        return 0, 0, 0
    longest = (0, 0)
    for row in range(len(offsets) - 1):
        if not 0 <= offsets[row] <= offsets[row + 1] <= size:
            return row, 0, 0
        if offsets[row + 1] - offsets[row] > longest[1]:
            longest = (row, offsets[row + 1] - offsets[row])
    return None, *longest


def fill_gaps(lengths: Sequence[int], side: str, value: Any, out: Array) -> None:
    """Write `value` to every place of `out`, `[rows, width]`, that rows of these lengths leave free."""
    width = out.shape[1]
    for row, length in enumerate(lengths):
        for position in range(width):
            inside = position < length if side == "right" else position >= width - length
            if not inside:
                out[row, position] = value


def attention_mask(lengths: Sequence[int], side: str, out: Array) -> None:
    """Write 1 to `out`, `[rows, width]`, where rows of these lengths have tokens and 0 where they have padding."""
    width = out.shape[1]
    for row, length in enumerate(lengths):
        for position in range(width):
            inside = position < length if side == "right" else position >= width - length
            out[row, position] = 1 if inside else 0


def unpad(padded: Array, offsets: Sequence[int], side: str, out: Array) -> None:
    """Write the rows of `padded`, `[rows, width, ...]`, to `out[offsets[i] : offsets[i + 1]]`, zeros elsewhere.

    Of a longer row there are only the first `width` tokens.
    """
    width = padded.shape[1]
    out[:] = 0
    for row in range(len(offsets) - 1):
        length = min(offsets[row + 1] - offsets[row], width)
        gap = width - length if side == "left" else 0
        for position in range(length):
            out[offsets[row] + position] = padded[row, gap + position]


def unpad_masked(padded: Array, mask: Array, offsets: Array, out: Array) -> None:
    """Write the tokens of `padded`, `[rows, width, ...]`, that `mask` keeps to `out`, and where rows begin and end."""
    place = 0
    for row, kept in enumerate(mask):
        for position, keep in enumerate(kept):
            if keep:
                out[place] = padded[row, position]
                place += 1
        offsets[row + 1] = place
    offsets[0] = 0


def mask_layout(mask: Array) -> tuple[list[int], list[int], int]:
    """The places of the flattened `mask`, `[rows, width]`, that are not 0, where rows begin, and the longest row."""
    indices, bounds, longest = [], [0], 0
    for row, kept in enumerate(mask):
        places = [row * mask.shape[1] + position for position, keep in enumerate(kept) if keep]
        indices += places
        bounds.append(len(indices))
        longest = max(longest, len(places))
    return indices, bounds, longest


def take_tokens(values: Array, indices: Sequence[int], out: Array) -> None:
    """Write the tokens with these numbers to `out`, one after the other; 0 for numbers that no token has."""
    for place, index in enumerate(indices):
        out[place] = values[index] if 0 <= index < len(values) else 0


def put_tokens(values: Array, indices: Sequence[int], out: Array) -> None:
    """Write token i to `out[indices[i]]`, and 0 elsewhere. Of several for one place the last stays."""
    out[:] = 0
    for token, index in zip(values, indices, strict=True):
        out[index] = token


def position_ids(lengths: Sequence[int], start: int, out: Array) -> None:
    """Write to flat `out` where in its row each token stands, from `start`; places after the last row count on."""
    place = 0
    for length in lengths:
        for position in range(length):
            out[place] = start + position
            place += 1
    for rest in range(place, len(out)):
        out[rest] = out[rest - 1] + 1


def seq_idx(lengths: Sequence[int], out: Array, start: Any = None, first: int = 0, none: int = -1) -> None:
    """Write to flat `out` the number of each token's row, from `first` on, and `none` where there is no token.

    Row i begins at `start[i]`; without `start`, where the row before it ends.
    """
    out[:] = none
    for row, length in enumerate(lengths):
        place = sum(lengths[:row]) if start is None else start[row]
        out[place : place + length] = first + row


def cu_seqlens(lengths: Sequence[int], out: Array) -> None:
    """Write to `out`, `[rows + 1]`, where each row of a flat batch begins, and where the last one ends."""
    for row in range(len(lengths) + 1):
        out[row] = sum(lengths[:row])


def separate_rows(start: Sequence[int], value: Any, out: Array) -> None:
    """Write `value` to `out[start[i]]`, the first place of row i, for every row."""
    for first in start:
        out[first] = value


def causal_labels(ids: Array, pad_id: int, labels: Array) -> None:
    """Write `ids` to `labels`, and -100 where a token is the padding token."""
    for position, token in enumerate(ids):
        labels[position] = -100 if token == pad_id else token


def special_tokens(ids: Array, special_ids: Collection[int], out: Array) -> None:
    """Write 1 to `out` where a token is among `special_ids`, and 0 elsewhere."""
    for position, token in enumerate(ids):
        out[position] = 1 if token in special_ids else 0


def word_starts(places: Array, special: Array, words: Array) -> None:
    """Write what each token of a row is to `words`: 1 begins a word, 0 continues one, 2 is part of none.

    `places` are the character offsets, `[length, 2]`, or the number of each token's word, `[length]`, negative for
    none. `special` is 1 for special tokens, which part words, 0 for others; another number is a special token that
    does not part offsets.
    """
    by_offsets = places.ndim == 2
    for i, place in enumerate(places):
        if special[i] != 0 or (not by_offsets and place < 0):
            words[i] = 2
        elif by_offsets:
            end_before = -1 if i == 0 else places[i - 1][1]
            words[i] = 1 if place[0] != end_before or (i > 0 and special[i - 1] == 1) else 0
        else:
            words[i] = 1 if i == 0 or place != places[i - 1] or special[i - 1] != 0 else 0


def fill_ends(start: Sequence[int], lengths: Sequence[int], value: Any, out: Array) -> None:
    """Write `value` to flat `out` behind each row: row i begins at `start[i]`, its place ends at `start[i + 1]`."""
    for row, length in enumerate(lengths):
        for place in range(start[row] + length, start[row + 1]):
            out[place] = value
