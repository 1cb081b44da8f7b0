"""Any loop in order of length: batches by token budget, and what is computed of them in the order of the rows."""

from __future__ import annotations

import contextlib
import functools
import itertools
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from quadrat.batching.budget import Budget, joins_rows, require_rows, usual_budget
from quadrat.batching.lengths import is_arrow, lengths_of
from quadrat.batching.lengths import lengths as measured
from quadrat.batching.packing import require_choice
from quadrat.data._grouped import source_of
from quadrat.input.rows import MAIN, Rows, table_of
from quadrat.ops._philox import number_below
from quadrat.ops._restored import Restoring, in_host_memory, named, row_of
from quadrat.ragged import Ragged
from quadrat.ragged.offsets import require_each
from quadrat.support.arrays import IntArray, is_array
from quadrat.support.extras import needs
from quadrat.support.progress import NoBar, progress_bar
from quadrat.support.wrappers import unexpected

_USUAL = 32  # rows of mean length, which the budget "auto" has room for
_AT_A_TIME = 1024  # texts that are tokenised at once
_UNLIMITED = 10**20  # tokenizers without a limit have a larger one


class by_length:  # noqa: N801 - called like `map` and `zip`
    """Batches of rows of similar length, the longest first, each with the numbers of its rows.

    Rows of about the same length are padded together, as many as a token budget allows. Iterate over the object, as
    often as you like, for pairs of row numbers, `[rows]` int64, and the batch that the collator makes of these rows.
    `len()` is the number of batches, and `row_numbers` a list of the rows of each. `restore` puts what you computed of
    each batch into the order of the rows. Results agree with those of other batches to floating-point rounding.

    Args:
        rows: a dataset with `len` and `[]`, a list of mappings with token ids, columns (a dict, a `pyarrow.Table` or
            other Arrow data), a `Ragged`; with a tokenizer also a list of texts, or of pairs of texts, which are
            tokenised once and cut at the tokenizer's `model_max_length`.
        collator: a collator of quadrat or transformers, or a function of a list of rows, which gets a `Ragged` as a
            `Ragged`. By default a `DataCollatorWithPadding` of the tokenizer.
        tokenizer: for texts, and for the default collator.
        max_tokens: the maximum number of tokens in a batch, padding included. "auto": those of 32 rows of mean length,
            and at least those of the longest row.
        column: the column whose lengths count.
        lengths: `[rows]` integers, by default the `quadrat.lengths` of `column`.
        max_batch_size: the maximum number of rows in a batch; by default as many as the budget allows.
        overlong: for a row longer than `max_tokens`: "alone" makes it a batch of its own, "error" raises ValueError.
        world_size, rank: the number of processes and the number of this one, each of which gets as many batches; with
            few rows, some rows come twice.

    Raises:
        TypeError: for rows that cannot be indexed, without a collator and a tokenizer, and what `quadrat.lengths`
            raises.
        ValueError: when there are no rows, or one has no tokens, or is above the budget with `overlong="error"`; the
            message names the row.

    Examples:
        >>> import quadrat
        >>> rows = quadrat.Ragged.from_rows([[5, 6], [7, 8, 9, 10], [11], [12, 13, 14]])
        >>> batches = quadrat.batching.by_length(rows, collator=quadrat.pad, max_tokens=8)
        >>> [numbers.tolist() for numbers, _ in batches]
        [[1, 3], [0, 2]]
        >>> batches.restore([batch.sum(1) for _, batch in batches])
        array([11, 34, 11, 39])
    """

    def __init__(
        self,
        rows: Any,
        *,
        collator: Callable[[Any], Any] | None = None,
        tokenizer: Any = None,
        max_tokens: int | Literal["auto"] = "auto",
        column: str = MAIN,
        lengths: Any = None,
        max_batch_size: int | None = None,
        overlong: Literal["error", "alone"] = "alone",
        world_size: int = 1,
        rank: int = 0,
    ) -> None:
        self.collator = _collator_of(collator, tokenizer)
        self.world_size = number_below(world_size, "world_size", 1 << 32, 1)
        self.rank = number_below(rank, "rank", self.world_size)
        rows = _tokenized(rows, tokenizer)
        sizes = measured(rows, column) if lengths is None else lengths_of(lengths)
        require_rows(sizes, "batch")
        self._count, self._read = _reader(rows, column)
        require_each(sizes, self._count)
        if not sizes.min():
            raise ValueError(f"row {int(sizes.argmin())} has no tokens: leave it out, or give it a token")
        multiple = getattr(self.collator, "pad_to_multiple_of", None) or 1
        if max_tokens == "auto":
            max_tokens = usual_budget(_USUAL, sizes, multiple)
        require_choice(overlong, "overlong", ("error", "alone"))
        budget = Budget.of(max_tokens, not joins_rows(self.collator), max_batch_size, multiple)
        if overlong == "error":
            budget.require(sizes, advice="overlong='alone' makes such a row a batch of its own")
        order = np.arange(self._count)
        batches = budget.batched(sizes, order, self._count)
        self._shares = min(self.world_size, self._count)  # with more processes than rows, some have the same row
        if self._shares > 1:
            steps = -(-len(batches) // self._shares)
            batches = budget.balanced(sizes, order, batches, ranks=self._shares, steps=steps, order=None).reshape(-1, 3)
        self.max_tokens = budget.tokens
        self._plan = [order[first:last] for first, last, _ in batches.tolist()]
        self.row_numbers = self._of_rank(self.rank)

    def __repr__(self) -> str:
        return f"by_length(rows={self._count}, batches={len(self)}, max_tokens={self.max_tokens})"

    def __len__(self) -> int:
        """The number of batches, for this rank."""
        return len(self.row_numbers)

    def __iter__(self) -> Iterator[tuple[IntArray, Any]]:
        """Pairs of row numbers, `[rows]` int64, and the batch of these rows."""
        for rows in self.row_numbers:
            numbers = rows.copy()
            with _naming(numbers):
                batch = self.collator(self._read(numbers.tolist()))
            yield numbers, batch

    def restore(self, outputs: Iterable[Any], *, padding_value: Any = -100) -> Any:
        """Put the outputs of the batches into the order of the rows.

        With several processes, each gives its own outputs and gets all, gathered by `torch.distributed` in host memory.

        Args:
            outputs: one for each batch, in the order of iteration, all of one structure: an array or a tensor,
                `[rows, ...]`; a `Ragged`; a list of one item for each row, whatever it is; or a mapping (a
                `ModelOutput` too) or a tuple of these, nested to any depth.
            padding_value: fills arrays whose second dimension differs from batch to batch, `[rows, width, ...]`. What a
                model computes for the padding within a batch stays: to keep the tokens of each row only, have it return
                `quadrat.unpad(values, mask=batch["attention_mask"])`, a `Ragged`.

        Returns:
            The same structure for all rows, `[all rows, ...]`, on the device of the outputs.

        Raises:
            TypeError, ValueError: when an output has too few or too many rows, or another structure than the first; the
                message names the rows. ValueError when its dtype cannot hold the `padding_value` that it needs.
            RuntimeError: with several processes, when `torch.distributed` has not been initialised.
        """
        outputs, numbers = list(outputs), self.row_numbers
        if len(outputs) != len(self):
            raise ValueError(f"{len(outputs)} outputs for {len(self)} batches: give one for each, in their order")
        if self.world_size > 1:
            parts: list[Any] = [None] * self.world_size
            distributed = _require_processes(self.world_size, self.rank)
            import torch

            with torch.inference_mode(False):  # torch 2.2 does not receive in it
                distributed.all_gather_object(parts, [in_host_memory(output) for output in outputs])
            # Its own first, on whose device the results are.
            parts[self.rank], ranks = outputs, sorted(range(self.world_size), key=lambda rank: rank != self.rank)
            outputs = [output for rank in ranks for output in parts[rank]]
            numbers = [rows for rank in ranks for rows in self._of_rank(rank)]
        return Restoring(self._count, numbers, padding_value).restored(outputs)

    def _of_rank(self, rank: int) -> list[IntArray]:
        return self._plan[rank % self._shares :: self._shares]


def map_by_length(
    function: Callable[[Any], Any],
    rows: Any,
    *,
    collator: Callable[[Any], Any] | None = None,
    tokenizer: Any = None,
    max_tokens: int | Literal["auto"] = "auto",
    padding_value: Any = -100,
    window: int = 2048,
    **options: Any,
) -> Any:
    """Call a function with batches of rows of similar length, and return what it returns in the order of the rows.

    Rows that can be indexed are planned at once, and the result is one object; a terminal shows a progress bar. Other
    rows (an iterator, a generator, an `IterableDataset`), which may be endless, are planned in windows, and the result
    is an iterator of one item for each row, in order, which holds the rows of one window. It ends with an error, after
    the rows that were read before one.

    Call it, and read an iterator's results, within `torch.inference_mode()`.

    Args:
        function: of a batch. It returns an output for these rows, as `by_length.restore` takes it; keep large ones in
            host memory (`.cpu()`).
        rows, collator, tokenizer, max_tokens: as for `by_length`.
        padding_value: as for `by_length.restore`.
        window: the number of rows that are read at once from an iterator.
        options: more of `by_length`. With several processes, each gives the same rows, and gets the results of all. An
            iterator has no `lengths`.

    Returns:
        What `by_length.restore` returns; of an iterator, an iterator of its rows.

    Raises:
        TypeError, ValueError, RuntimeError: what `by_length` and `by_length.restore` raise, and what the function
            raises, with the numbers of the rows of its batch.

    Examples:
        >>> import quadrat
        >>> rows = quadrat.Ragged.from_rows([[5, 6], [7, 8, 9, 10], [11], [12, 13, 14]])
        >>> def function(batch):
        ...     return {"sum": batch.sum(1), "last": batch.max(1).tolist()}
        >>> quadrat.batching.map_by_length(function, rows, collator=quadrat.pad)
        {'sum': array([11, 34, 11, 39]), 'last': [6, 10, 11, 14]}
        >>> results = quadrat.batching.map_by_length(function, iter(rows), collator=quadrat.pad)
        >>> [result["last"] for result in results]
        [6, 10, 11, 14]
    """
    known = by_length.__init__.__kwdefaults__ or {}
    for name in options.keys() - known:
        raise unexpected("map_by_length", name, known)
    options |= {"collator": _collator_of(collator, tokenizer), "tokenizer": tokenizer, "max_tokens": max_tokens}
    if (world_size := options.get("world_size", 1)) != 1:
        _require_processes(world_size, options.get("rank", 0))
    if not _can_be_indexed(rows):
        if "lengths" in options:
            raise TypeError("lengths are those of rows that can be indexed: give list(rows), or no lengths")
        return _in_windows(function, iter(rows), number_below(window, "window", 1 << 62, 1), options, padding_value)
    batches = by_length(rows, **options)
    count = sum(map(len, batches.row_numbers))
    with NoBar() if batches.rank or len(batches) == 1 else progress_bar(count, "rows") as bar:
        return _computed(function, batches, padding_value, bar)


def _in_windows(function: Any, rows: Iterator[Any], window: int, options: Any, padding_value: Any) -> Iterator[Any]:
    """The results of rows that are read in windows."""
    for first in itertools.count(0, window):
        read, failure = list[Any](), None
        try:
            read.extend(itertools.islice(rows, window))  # keeps the rows before an error
        except Exception as error:
            failure = error
        if read:
            try:
                results = _computed(function, by_length(read, **options), padding_value, NoBar())
            except Exception as error:
                if first:
                    error.add_note(f"quadrat: rows are counted from row {first}, the first one of a window")
                raise
            yield from map(functools.partial(row_of, results), range(len(read)))
            del results  # before more rows are read
        if failure is not None:
            raise failure
        if not read:
            return


def _computed(function: Callable[[Any], Any], batches: by_length, padding_value: Any, bar: Any) -> Any:
    """Calls a function with each batch, and returns its outputs in the order of the rows."""
    outputs = []
    for numbers, batch in batches:
        with _naming(numbers):
            outputs.append(function(batch))
        bar.update(len(numbers))
    return batches.restore(outputs, padding_value=padding_value)


@contextlib.contextmanager
def _naming(numbers: IntArray) -> Iterator[None]:
    """Adds the numbers of rows to errors."""
    try:
        yield
    except Exception as error:
        error.add_note(f"quadrat: the batch has {named(numbers)}")
        raise


def _require_processes(world_size: int, rank: int) -> Any:
    """`torch.distributed`. Raises RuntimeError or ValueError unless it has these processes."""
    with needs("results of several processes"):
        import torch.distributed as processes

    if not (processes.is_available() and processes.is_initialized()):
        raise RuntimeError(
            f"world_size={world_size}: the results of all processes are gathered by torch.distributed, which is not "
            "initialised: call torch.distributed.init_process_group first, or leave world_size out"
        )
    size, place = processes.get_world_size(), processes.get_rank()
    if (size, place) != (world_size, rank):
        raise ValueError(f"world_size={world_size} and rank={rank}, but torch.distributed has {size} and {place}")
    return processes


def _collator_of(collator: Any, tokenizer: Any) -> Any:
    if collator is None and tokenizer is not None:
        from quadrat.collators.padding import DataCollatorWithPadding

        return DataCollatorWithPadding(tokenizer)
    if not callable(collator):
        raise TypeError(f"collator must be a function of rows, not {type(collator).__name__}: give one, or a tokenizer")
    return collator


def _can_be_indexed(rows: Any) -> bool:
    streams: Any = getattr(sys.modules.get("torch.utils.data"), "IterableDataset", ())  # which may have a length
    return hasattr(rows, "__len__") and hasattr(rows, "__getitem__") and not isinstance(rows, streams)


def _tokenized(rows: Any, tokenizer: Any) -> Any:
    """Texts as mappings with token ids; other rows as they are."""
    if isinstance(rows, str):
        raise TypeError("rows are one text: give a list of texts")
    if not _can_be_indexed(rows):
        instead = "give list(rows), or use map_by_length, which reads rows in windows"
        raise TypeError(f"a {type(rows).__name__} cannot be indexed by row: {instead}")
    if tokenizer is None or not isinstance(rows, Sequence) or not len(rows) or not _is_text(rows[0]):
        return rows
    limited = getattr(tokenizer, "model_max_length", _UNLIMITED) < _UNLIMITED
    rest, encodings = iter(rows), list[Any]()
    for texts in iter(lambda: list(itertools.islice(rest, _AT_A_TIME)), []):
        for row, text in enumerate(texts, len(encodings)):
            if not _is_text(text):
                raise TypeError(f"row {row} is a {type(text).__name__}, and rows before it are texts")
        columns = tokenizer(texts, truncation=limited)
        encodings += [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    return encodings


def _is_text(row: Any) -> bool:
    pair = isinstance(row, (list, tuple)) and len(row) == 2
    return all(isinstance(part, str) for part in row) if pair else isinstance(row, str)


def _reader(rows: Any, column: str) -> tuple[int, Callable[[list[int]], Any]]:
    """How many rows there are, and a function that gives some of them, by number, to a collator."""
    if isinstance(rows, Ragged):
        return len(rows), rows.__getitem__
    if is_arrow(rows) or isinstance(rows, Mapping) or is_array(rows):
        table = table_of(rows, column)
        return len(table), functools.partial(Rows, table)
    source = source_of(rows, None)
    one_by_one = lambda numbers: [source[number] for number in numbers]  # noqa: E731
    return len(source), getattr(source, "__getitems__", one_by_one)
