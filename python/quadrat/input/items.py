"""Items of a dataset that stand for several rows: batches, and packs. Collators read them as these rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from quadrat import _core
from quadrat.input.columns import INTS, ROWS, explain, inferred_kind
from quadrat.input.lazy_row import as_columns
from quadrat.input.rows import MAIN, SEQUENCES, Rows, first_mapping, rows_of, rows_of_columns
from quadrat.ragged import Ragged
from quadrat.support.mappings import is_plain
from quadrat.support.memory import FLOAT64, INT64, KINDS, address_of, interop

# The column that says which documents a row was packed from, as TRL names it.
SEQ_LENGTHS = "seq_lengths"

IntArray = NDArray[np.int64]


class Pieces(NamedTuple):
    """Stretches of rows, `[rows]` each, in tokens."""

    rows: IntArray  # the number of each row, for errors
    lengths: IntArray  # how long it is
    starts: IntArray  # where in it to begin
    sizes: IntArray  # how many tokens to take

    def at(self, places: Any) -> Pieces:
        """Some of them."""
        return Pieces(*(part[places] for part in self))


class Batch(list[Any]):
    """The rows of a batch, if a dataset has them as one item."""


class Pack(Mapping[str, Any]):
    """Documents that were joined to one row.

    A mapping: `pack["input_ids"]` is an array with the tokens of all documents, as is each extra column, and
    `pack["seq_lengths"]` says how long each document is. The arrays may be changed, and are collated as they are then.
    """

    __slots__ = ("_at", "_packs")

    def __init__(self, packs: Packs, at: int) -> None:
        self._packs, self._at = packs, at

    def __getitem__(self, name: str) -> Any:
        return self._packs.column(name, self._at)

    def __contains__(self, name: object) -> bool:
        return name == SEQ_LENGTHS or name in self._packs.values

    def __iter__(self) -> Iterator[str]:
        yield from self._packs.values
        yield SEQ_LENGTHS

    def __len__(self) -> int:
        return len(self._packs.values) + 1

    def __repr__(self) -> str:
        sizes = self[SEQ_LENGTHS]
        return f"Pack({sizes.sum()} tokens, {len(sizes)} documents, columns {list(self._packs.values)})"

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles this pack alone, without the others in its memory."""
        return Pack, (Packs.of([self]), 0)


class Packs:
    """Packs whose columns lie one after the other in memory."""

    def __init__(self, values: dict[str, NDArray[Any]], sizes: IntArray, offsets: IntArray) -> None:
        self.values, self.sizes = values, sizes  # by column `[tokens]`, and the size of each document in tokens
        self.offsets = offsets  # `[packs + 1]`: where in the documents each pack begins
        self._bounds = np.concatenate(([0], sizes.cumsum()))  # of documents, in tokens

    @classmethod
    def of(cls, packs: Sequence[Pack]) -> Packs:
        """These packs: without a copy if they lie one after the other in one memory, otherwise copies."""
        whole, first = packs[0]._packs, packs[0]._at
        end = first + len(packs)
        if [pack._at for pack in packs] == list(range(first, end)) and all(pack._packs is whole for pack in packs):
            return whole if len(packs) == len(whole) else whole._part(first, end)
        names = list(whole.values)
        for row, pack in enumerate(packs):
            if list(pack._packs.values) != names:
                raise ValueError(f"pack {row} has the columns {list(pack._packs.values)} where pack 0 has {names}")
        sizes = [pack[SEQ_LENGTHS] for pack in packs]
        values = {name: np.concatenate([pack[name] for pack in packs]) for name in names}
        return cls(values, np.concatenate(sizes), np.cumsum([0, *map(len, sizes)]))

    def _part(self, first: int, end: int) -> Packs:
        offsets = self.offsets[first : end + 1]
        bounds = self._bounds[offsets[0] : offsets[-1] + 1]
        values = {name: column[bounds[0] : bounds[-1]] for name, column in self.values.items()}
        part = Packs(values, self.sizes[offsets[0] : offsets[-1]], offsets - offsets[0])
        part._bounds = bounds - bounds[0]  # the sizes may have been changed
        return part

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def column(self, name: str, at: int) -> NDArray[Any]:
        """A column of one pack; raises KeyError."""
        first, last = self.offsets[at], self.offsets[at + 1]
        if name == SEQ_LENGTHS:
            return self.sizes[first:last]
        return self.values[name][self._bounds[first] : self._bounds[last]]

    def rows(self) -> Rows:
        """A row for each pack."""
        columns = {name: Ragged(values, self._bounds[self.offsets]) for name, values in self.values.items()}
        return rows_of_columns(columns | {SEQ_LENGTHS: Ragged(self.sizes, self.offsets)})  # type: ignore[no-any-return]

    def documents(self) -> Rows:
        """A row for each document that has tokens."""
        bounds = np.concatenate(([0], self.sizes.cumsum()))  # the sizes may have been changed
        if (self.sizes < 0).any() or (bounds[self.offsets] != self._bounds[self.offsets]).any():
            raise ValueError("the seq_lengths of a pack were changed, and no longer sum to its tokens")
        bounds = np.append(bounds[:-1][self.sizes > 0], bounds[-1])
        columns = {name: Ragged(values, bounds) for name, values in self.values.items()}
        return rows_of_columns(columns)  # type: ignore[no-any-return]


def normalise(features: Any, *, bare: bool, documents: bool) -> Any:
    """Features in one form: what `rows_of` says, with a batch, a list of one, or a list of packs taken apart.

    With `documents`, packed rows become their documents, of which only columns with one number per token are left.
    Raises ValueError for several batches, where `rows_of` does, and when `seq_lengths` do not sum to a row's tokens.
    """
    if type(features) in SEQUENCES and len(features) and type(features) is not Rows:
        if type(features[0]) in (Batch, Rows):
            if len(features) > 1:
                raise ValueError(
                    f"{len(features)} batches at once: each item of the dataset is a whole batch, so the DataLoader "
                    "takes one (batch_size=1; in Trainer, per_device_train_batch_size=1)"
                )
            features = features[0]
        elif type(features[0]) is Pack and all(type(feature) is Pack for feature in features):
            packs = Packs.of(features)
            return packs.documents() if documents else packs.rows()
    if type(features) is Batch:
        features = list(features)
    rows = rows_of(as_columns(features), bare=bare)
    return _documents_of(rows) if documents and has_documents(rows) else rows


def has_documents(features: Any) -> bool:
    """Whether features, in one form, are rows that were packed."""
    if type(features) is list and features and type(features[0]) is dict:  # the usual form, at once
        return SEQ_LENGTHS in features[0]
    if type(features) is Rows and not features.handed_out:
        return features.has(SEQ_LENGTHS)
    if type(features) not in SEQUENCES or not features:
        return False
    first = features[0]  # only plain mappings are asked: others may insert what they are asked for
    return type(first) is Pack or (is_plain(first) and SEQ_LENGTHS in first)


def join(features: Any, names: Sequence[str], pieces: Pieces | None = None) -> tuple[dict[str, NDArray[Any]], IntArray]:
    """Columns of `Rows` or of a list of mappings, each as one array, and the length of each row, in tokens.

    `pieces`: what to take of each row; by default all.

    Raises:
        TypeError: when a column does not hold rows of numbers, or a feature is no mapping with these columns.
        ValueError: when the columns differ in the length of a row, or it is not as long as `pieces` say.
    """
    collected = _core.collect(as_columns(features), tuple(names), interop())
    if collected is None:
        raise TypeError(f"rows must be mappings, each with the columns {list(names)} of the first one")
    columns, values, kinds = collected[1], {}, []
    sizes = np.empty(columns.count(0), np.int64)
    for index, name in enumerate(names):
        if (kind := _kind_of(columns, index)) is None:
            raise TypeError(f"column {name!r} does not hold rows of numbers: name the columns to keep, columns=[...]")
        kinds.append(kind)
        if (row := columns.first_difference(0, index)) >= 0:
            one, other = (np.size(_value(features, row, column)) for column in (names[0], name))
            raise ValueError(
                f"row {row if pieces is None else pieces.rows[row]} has {one} tokens in {names[0]!r} and {other} in "
                f"{name!r}: rows are joined where all columns are equally long"
            )
    columns.lengths(0, address_of(sizes))
    if pieces is not None:
        if (wrong := np.flatnonzero(sizes != pieces.lengths)).size:
            row = int(wrong[0])
            said = f"{sizes[row]} tokens in {names[0]!r}, and lengths say {pieces.lengths[row]}"
            raise ValueError(f"row {pieces.rows[row]} has {said}")
        sizes = pieces.sizes
        columns = _cut(features, names, columns, pieces)
    for index, name in enumerate(names):
        kind, total = kinds[index], columns.describe(index)[5]
        values[name] = np.empty(total, KINDS[kind])
        if (failure := columns.flatten(index, address_of(values[name]), kind, total)) is not None:
            raise ValueError(f"column {name!r}: {explain(failure)}")
    return values, sizes


def _kind_of(columns: _core.Columns, index: int) -> int | None:
    """The kind of the numbers in a column's rows: the one Python would make of several; None where NumPy has none."""
    forms, _, kinds, *_ = columns.describe(index)
    if forms & ~ROWS:
        return None
    if not kinds & (kinds - 1):
        kind = kinds.bit_length() - 1 if kinds else INT64
        return None if KINDS[kind] == "bfloat16" else kind
    return inferred_kind(kinds, FLOAT64)


def _cut(features: Any, names: Sequence[str], columns: _core.Columns, pieces: Pieces) -> _core.Columns:
    if (pieces.sizes == pieces.lengths).all():
        return columns
    if isinstance(features, Rows):
        starts, sizes = map(np.ascontiguousarray, (pieces.starts, pieces.sizes))
        for index in range(len(names)):
            columns.cut(index, address_of(starts), address_of(sizes))
        return columns
    spans = [slice(start, start + size) for start, size in zip(pieces.starts, pieces.sizes, strict=True)]
    found = [{name: row[name][span] for name in names} for row, span in zip(features, spans, strict=True)]
    collected = _core.collect(found, tuple(names), interop())
    assert collected is not None
    return collected[1]


def _value(features: Any, row: int, name: str) -> Any:
    return features.value(name, row) if isinstance(features, Rows) else features[row][name]


def _documents_of(features: Any) -> Any:
    """The documents of packed rows; the rows themselves where `seq_lengths` are something else."""
    first = first_mapping(features)
    collected = _core.collect(features, (SEQ_LENGTHS, MAIN), interop())
    if first is None or collected is None:
        return features
    forms, _, kinds, *_ = collected[1].describe(0)
    if forms & ~ROWS or kinds & ~INTS:
        return features
    documents, packed = join(features, [SEQ_LENGTHS])
    names = [name for name in first if name != SEQ_LENGTHS and (name == MAIN or _joins(features, name))]
    values, sizes = join(features, names)
    lengths, offsets = documents[SEQ_LENGTHS].astype(np.int64), np.concatenate(([0], packed.cumsum()))
    sums = np.diff(np.concatenate(([0], lengths.cumsum()))[offsets])
    wrong = np.flatnonzero(sums != sizes)
    if len(wrong) or (lengths < 0).any():
        row = int(wrong[0]) if len(wrong) else int(np.searchsorted(offsets, (lengths < 0).argmax(), "right")) - 1
        raise ValueError(
            f"row {row}: seq_lengths {_value(features, row, SEQ_LENGTHS)!r:.60} do not sum to its {sizes[row]} tokens"
        )
    return Packs({name: values[name] for name in names}, lengths, offsets).documents()


def _joins(features: Any, name: str) -> bool:
    collected = _core.collect(features, (name,), interop())
    return collected is not None and _kind_of(collected[1], 0) is not None
