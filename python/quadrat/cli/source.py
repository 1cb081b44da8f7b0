"""The user's own data: texts of a file or a saved data set, or rows of tokens, and the tokenizer that counts them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from quadrat.cli.command import CommandError, listed, require, with_progress
from quadrat.cli.texts import FieldError, read_texts, train_tokenizer
from quadrat.cli.waste import IntArray

if TYPE_CHECKING:
    import datasets
    from transformers import PreTrainedTokenizerBase

# Texts or rows that are in memory at once, with their tokens.
_CHUNK = 1000
# A tokenizer is trained on at most so many texts, spread over all of them.
_MOST_TEXTS_TO_TRAIN_ON = 20_000
# transformers sets 1e30 if a tokenizer has no limit.
_LONGEST_SANE = 10_000_000


@dataclass(frozen=True)
class DataOptions:
    """The options of every command that reads data; None means that the data decides."""

    data: Path
    tokenizer: str | None = None
    field: str | None = None
    split: str | None = None
    batch_size: int = 32
    max_length: int | None = None
    seed: int = 0
    json: bool = False


@dataclass(frozen=True)
class TextFile:
    """The texts of a file."""

    name: str
    texts: list[str]

    def __len__(self) -> int:
        return len(self.texts)

    def chunks(self) -> Iterator[list[str]]:
        """All texts in their order, some at a time."""
        for first in range(0, len(self.texts), _CHUNK):
            yield self.texts[first : first + _CHUNK]

    def pick(self, rows: Sequence[int]) -> list[str]:
        """The texts at `rows`."""
        return [self.texts[row] for row in rows]


@dataclass(frozen=True)
class _Column:
    """A column of a saved data set, whose values stay in the file, or of a Parquet file."""

    name: str
    dataset: datasets.Dataset
    column: str

    def __len__(self) -> int:
        return len(self.dataset)

    def _arrow_chunks(self) -> Iterator[Any]:
        """All values in their order, some at a time, in Arrow. A missing one raises CommandError."""
        first = 0
        for table in self.dataset.select_columns([self.column]).with_format("arrow").iter(batch_size=_CHUNK):
            values = table[self.column]
            if values.null_count:
                self._require(None, first + values.is_null().to_numpy().argmax(), self.column)
            yield values
            first += len(table)

    def _require(self, value: Any, row: int, column: str, kind: type = object) -> None:
        if value is None:
            raise CommandError(f"{self.name}, row {row}: column {column!r} is null")
        if not isinstance(value, kind):
            found = type(value).__name__
            raise CommandError(f"{self.name}, row {row}: column {column!r} holds {found}; expected a {kind.__name__}")


class TextColumn(_Column):
    """A column of texts. A missing text raises CommandError."""

    def chunks(self) -> Iterator[list[str]]:
        """All texts in their order, some at a time."""
        return (values.to_pylist() for values in self._arrow_chunks())

    def pick(self, rows: Sequence[int]) -> list[str]:
        """The texts at `rows`."""
        texts: list[str] = self.dataset[list(rows)][self.column]
        for row, text in zip(rows, texts, strict=True):
            self._require(text, row, self.column)
        return texts


class TokenColumn(_Column):
    """A column of token ids. A missing row raises CommandError."""

    def lengths(self) -> IntArray:
        """The tokens of each row, `[rows]`."""
        import pyarrow.compute as pc

        found = [pc.list_value_length(values).to_numpy() for values in self._arrow_chunks()]
        return np.concatenate(found).astype(np.int64)

    def pick(self, rows: Sequence[int], names: Sequence[str], max_length: int | None) -> list[dict[str, list[int]]]:
        """The columns `names`, where they are there, of the rows at `rows`, truncated; the tokens are `input_ids`.

        A value that is no list raises CommandError.
        """
        columns = {name: name for name in names if name in self.dataset.column_names} | {"input_ids": self.column}
        found = self.dataset.select_columns(sorted(set(columns.values())))[list(rows)]
        for position, row in enumerate(rows):
            for column in columns.values():
                self._require(found[column][position], row, column, list)
        return [
            {name: found[column][position][:max_length] for name, column in columns.items()}
            for position in range(len(rows))
        ]


Source = TextFile | TextColumn | TokenColumn


def packages_for(options: DataOptions) -> dict[str, str]:
    """The packages that reading the data needs, as far as its name tells, for `require`."""
    table = options.data.is_dir() or options.data.suffix.lower() == ".parquet"
    counts = not table or options.tokenizer is not None
    needed = {"datasets": "datasets"} if table else {}
    return needed | {"transformers": "transformers"} if counts else needed


def open_source(path: Path, *, field: str | None = None, split: str | None = None) -> Source:
    """The rows of a file or of a folder written by `datasets.save_to_disk`; at least one.

    Files of text are those that `read_texts` reads; a `.parquet` file is a table. `field` is the field or column of
    texts or token ids; by default "text", or "input_ids" in a table that has it. Raises CommandError.
    """
    if path.is_dir():
        return _open_dataset(path, field, split)
    if split is not None:
        raise CommandError(f"{path}: --split is for a folder with a DatasetDict")
    ending = path.suffix.lower()
    if field is not None and ending == ".txt":
        raise CommandError(f"{path}: a .txt file has no fields, each line is a text; leave out --field")
    if not path.exists():
        raise CommandError(f"{path}: no such file or folder")
    try:
        if ending == ".parquet" and path.is_file():
            return _open_parquet(path, field)
        return TextFile(str(path), read_texts(path, field="text" if field is None else field))
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror or error}") from error
    except FieldError as error:
        choices = f"choose one with --field: {listed(error.choices)}" if error.choices else "no field has strings"
        raise CommandError(f"{error}; {choices}") from error
    except ValueError as error:
        raise CommandError(str(error)) from error


def load_tokenizer(name: str) -> PreTrainedTokenizerBase:
    """The tokenizer of a folder or of a name on the Hub. Raises CommandError."""
    require("a tokenizer", {"transformers": "transformers"})
    from transformers import AutoTokenizer

    try:
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(name, trust_remote_code=False)
    except Exception as error:  # of a folder or a server; there are many kinds
        raise CommandError(f"no tokenizer could be loaded from {name!r}: {_first_line(error)}") from error
    if not isinstance(tokenizer.model_max_length, (int, float)):
        found = type(tokenizer.model_max_length).__name__
        raise CommandError(f"the tokenizer {name!r}: model_max_length is a {found}; expected a number")
    return tokenizer


def train_on(source: TextFile | TextColumn) -> PreTrainedTokenizerBase:
    """The project's own tokenizer, trained on the texts, or on many of them, spread evenly."""
    require("a tokenizer", {"transformers": "transformers"})
    count = min(len(source), _MOST_TEXTS_TO_TRAIN_ON)
    rows = np.linspace(0, len(source) - 1, count).round().astype(int).tolist()
    return train_tokenizer([text for text in source.pick(rows) if text.strip()] or [""])


def longest_sane(tokenizer: PreTrainedTokenizerBase | None) -> int | None:
    """The most tokens in a row according to the tokenizer; None if it has no limit."""
    longest = None if tokenizer is None else tokenizer.model_max_length
    return int(longest) if longest is not None and 0 < longest <= _LONGEST_SANE else None


def text_lengths(source: TextFile | TextColumn, tokenizer: PreTrainedTokenizerBase) -> IntArray:
    """The tokens of each text, `[texts]`, special tokens included and nothing truncated. Only lengths are kept."""
    lengths = np.empty(len(source), dtype=np.int64)
    first = 0
    for texts in with_progress(source.chunks(), len(source), "Tokenising", len):
        lengths[first : first + len(texts)] = [len(row) for row in token_ids(tokenizer, texts)]
        first += len(texts)
    return lengths


def token_ids(tokenizer: PreTrainedTokenizerBase, texts: list[str]) -> list[list[int]]:
    """The token ids of texts, special tokens included and nothing truncated."""
    rows: list[list[int]] = tokenizer(
        texts,
        padding=False,
        truncation=False,
        return_attention_mask=False,
        return_token_type_ids=False,
        verbose=False,  # no warnings about rows that are too long for the model
    )["input_ids"]
    return rows


def _open_dataset(path: Path, field: str | None, split: str | None) -> TextColumn | TokenColumn:
    require("a saved data set", {"datasets": "datasets"})
    import datasets

    datasets.disable_progress_bars()
    try:
        loaded = datasets.load_from_disk(path)
    except IndexError as error:  # of no files at all
        raise CommandError(f"{path}: the dataset, or one of its splits, has no rows") from error
    except Exception as error:  # of the files in the folder; there are many kinds
        raise CommandError(f"{path}: not a folder written by save_to_disk: {_first_line(error)}") from error
    if isinstance(loaded, datasets.DatasetDict):
        splits = listed(list(loaded))
        if split is None:
            raise CommandError(f"{path}: this is a DatasetDict; choose one of its splits with --split: {splits}")
        if split not in loaded:
            raise CommandError(f"{path}: no split {split!r}; there are: {splits}")
        loaded = loaded[split]
        name = f"{path}, {split}"
    elif split is not None:
        raise CommandError(f"{path}: --split is for a DatasetDict, but this is a single dataset")
    else:
        name = str(path)
    return _column_of(loaded, name, field)


def _open_parquet(path: Path, field: str | None) -> TextColumn | TokenColumn:
    require("a Parquet file", {"datasets": "datasets"})
    import datasets
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        file = pq.ParquetFile(path)
        schema = file.schema_arrow
        readable = [one.name for one in schema if _is_text(one.type) or _is_tokens(one.type)]
        column = _chosen(schema.names, field, str(path))
        table = file.read(columns=list(dict.fromkeys([*readable, column])))
    except pa.ArrowException as error:
        raise CommandError(f"{path}: not a Parquet file that pyarrow can read: {_first_line(error)}") from error
    # Without a fingerprint, datasets would read all of it to make one.
    return _column_of(datasets.Dataset(datasets.table.InMemoryTable(table), fingerprint="quadrat"), str(path), field)


def _chosen(columns: list[str], field: str | None, name: str) -> str:
    """The column to read. Raises CommandError where there is no such column."""
    column = field if field is not None else "input_ids" if "input_ids" in columns else "text"
    if column not in columns:
        raise CommandError(f"{name}: no column {column!r}; choose one with --field: {listed(columns)}")
    return column


def _column_of(dataset: datasets.Dataset, name: str, field: str | None) -> TextColumn | TokenColumn:
    column = _chosen(dataset.column_names, field, name)
    if not len(dataset):
        raise CommandError(f"{name}: the dataset has no rows")
    kind = dataset.features.arrow_schema.field(column).type
    if _is_text(kind):
        return TextColumn(name, dataset.with_format(None), column)
    if _is_tokens(kind):
        return TokenColumn(name, dataset.with_format(None), column)
    raise CommandError(f"{name}: column {column!r} holds {kind}; expected text, or lists of token ids")


def _is_text(kind: Any) -> bool:
    from pyarrow import types

    return bool(types.is_string(kind) or types.is_large_string(kind))


def _is_tokens(kind: Any) -> bool:
    from pyarrow import types

    is_list = types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)
    return bool(is_list and types.is_integer(kind.value_type))


def _first_line(error: Exception) -> str:
    lines = str(error).split("\n")
    first = next((line.strip() for line in lines if line.strip()), type(error).__name__)
    return " ".join(str(error).split()) if first.endswith(":") else first  # with the list that it announces
