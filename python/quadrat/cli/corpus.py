"""The corpus of `quadrat waste`: rows of texts or of token ids, and the tokenizer that counts the texts."""

from __future__ import annotations

import glob
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from quadrat.batching.lengths import parts_of
from quadrat.batching.row_tokens import MASK, tokens_in_batches
from quadrat.cli.command import CommandError, listed, one_line
from quadrat.support.arrays import IntArray
from quadrat.support.extras import needs
from quadrat.support.progress import progress_bar

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

# Texts that are tokenised at once.
_CHUNK = 1000
# transformers sets 1e30 if a tokenizer has no limit.
_LONGEST_SANE = 10_000_000
EXPECTED = (
    "expected a file that ends in .txt, .csv, .tsv, .json, .jsonl or .parquet, or a folder that datasets' save_to_disk "
    "wrote, for example of a data set of the Hub"
)
# The method of `datasets.Dataset` that reads a file, and its options.
_READERS: dict[str, tuple[str, dict[str, Any]]] = {
    ".txt": ("from_text", {}),
    ".csv": ("from_csv", {"na_filter": False}),
    ".tsv": ("from_csv", {"na_filter": False, "sep": "\t"}),
    ".json": ("from_json", {}),
    ".jsonl": ("from_json", {}),
    ".parquet": ("from_parquet", {}),
}


@dataclass(frozen=True)
class Corpus:
    """Texts, or rows of token ids: `column` of an Arrow table, which has at least one row."""

    name: str
    table: Any
    column: str
    has_tokens: bool

    def lengths(self, tokenizer: PreTrainedTokenizerBase | None) -> tuple[IntArray, IntArray]:
        """The tokens of each row, nothing truncated, without and with padding that is stored. Raises CommandError.

        Tokens of a text include special tokens; without a tokenizer, they are words.
        """
        if self.has_tokens:
            is_masked = MASK in self.table.column_names and _is_tokens(self.table.schema.field(MASK).type)
            names = (self.column, MASK) if is_masked else (self.column,)
            try:
                lengths, stored = (
                    tokens_in_batches(parts_of(self.table, columns), choices=False) for columns in (names, names[:1])
                )
            except (TypeError, ValueError) as error:
                raise CommandError(f"{self.name}: {one_line(error)}") from error
            return lengths, stored
        values, counts = self.table[self.column], list[int]()
        with progress_bar(len(values), "counting") as bar:
            for first in range(0, len(values), _CHUNK):
                texts = values.slice(first, _CHUNK).to_pylist()
                # Without warnings about rows that are too long for the model.
                rows = tokenizer(texts, return_attention_mask=False, verbose=False)["input_ids"] if tokenizer else None
                counts += map(len, map(str.split, texts) if rows is None else rows)
                bar.update(len(texts))
        return (lengths := np.array(counts, np.int64)), lengths


def open_corpus(path: Path, *, field: str | None, split: str | None) -> Corpus:
    """A column of a file, or of a folder written by `datasets.save_to_disk`: texts or token ids. Raises CommandError.

    field: the column; None: "input_ids" if there is one, else "text".
    """
    name, table = _read(path, split)
    columns = table.column_names
    column = field if field is not None else "input_ids" if "input_ids" in columns else "text"
    if columns.count(column) != 1:
        what = "no column" if column not in columns else "more than one column"
        raise CommandError(f"{name}: {what} {column!r}; choose one with --field: {listed(columns)}")
    kind, values = table.schema.field(column).type, table[column]
    if not len(table):
        raise CommandError(f"{name}: there are no rows")
    if str(kind) not in ("string", "large_string") and not _is_tokens(kind):
        raise CommandError(f"{name}: column {column!r} holds {kind}; expected text, or lists of token ids")
    if values.null_count:
        raise CommandError(f"{name}, row {values.is_null().to_numpy().argmax()}: column {column!r} is null")
    return Corpus(name, table, column, _is_tokens(kind))


def load_tokenizer(name: str) -> PreTrainedTokenizerBase:
    """The tokenizer of a folder or of a name on the Hub. Raises CommandError."""
    with needs("--tokenizer", "transformers"):
        from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(name, trust_remote_code=False)
    except Exception as error:  # of a folder or a server; there are many kinds
        raise CommandError(f"no tokenizer could be loaded from {name!r}: {one_line(error)}") from error


def limit_of(tokenizer: PreTrainedTokenizerBase | None) -> int | None:
    """The most tokens in a row according to the tokenizer; None if it has no limit."""
    longest = None if tokenizer is None else tokenizer.model_max_length
    return int(longest) if longest is not None and 0 < longest <= _LONGEST_SANE else None


def _read(path: Path, split: str | None) -> tuple[str, Any]:
    """The name and the table of a file or a folder, as `datasets` reads it. Raises CommandError."""
    with needs("this command", "datasets"):
        import datasets

    if not path.exists():
        raise CommandError(f"{path}: no such file or folder; {EXPECTED}")
    if not path.is_dir() and (not path.is_file() or path.suffix.lower() not in _READERS):  # a pipe might never end
        raise CommandError(f"{path}: {'' if path.is_file() else 'not a file; '}{EXPECTED}")
    datasets.disable_progress_bars()
    datasets.logging.set_verbosity(datasets.logging.CRITICAL)  # of what it says of a file, the error says more
    try:
        if path.is_dir():
            data = datasets.load_from_disk(path)
        else:
            method, options = _READERS[path.suffix.lower()]
            with tempfile.TemporaryDirectory() as folder:
                options = {"keep_in_memory": True, "cache_dir": folder, **options}
                data = getattr(datasets.Dataset, method)(glob.escape(str(path)), **options)
    except Exception as error:  # of the content of files; there are many kinds
        why = "it, or one of its splits, has no rows" if isinstance(error, IndexError) else None
        raise CommandError(f"{path}: cannot be read: {why or one_line(error.__cause__ or error)}") from error
    splits = list(data) if isinstance(data, datasets.DatasetDict) else []
    if split is not None and not splits:
        raise CommandError(f"{path}: --split is for a folder with a DatasetDict")
    if splits and split not in splits:
        raise CommandError(
            f"{path}: a DatasetDict without a split {split!r}; choose one with --split: {listed(splits)}"
        )
    name, data = (f"{path}, {split}", data[split]) if splits else (str(path), data)
    return name, data.with_format("arrow")[:]


def _is_tokens(kind: Any) -> bool:
    from pyarrow import types

    is_list = types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)
    return bool(is_list and types.is_integer(kind.value_type))
