"""The user's own data: a column of texts or of token ids, and the tokenizer that counts the texts."""

from __future__ import annotations

import glob
import re
import tempfile
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from quadrat.batching.lengths import lengths, parts_of
from quadrat.batching.row_tokens import MASK, tokens_in_batches
from quadrat.cli.command import CommandError, listed, one_line
from quadrat.support.arrays import IntArray
from quadrat.support.progress import progress_bar

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

# Texts that are tokenised at once.
_CHUNK = 1000
# transformers sets 1e30 if a tokenizer has no limit.
_LONGEST_SANE = 10_000_000
EXPECTED = (
    "expected a file that ends in .txt, .csv, .tsv, .json, .jsonl or .parquet, or a folder that datasets' save_to_disk "
    "wrote"
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
_HUB_NAME = re.compile(r"[\w-]+(/[\w.-]+)?")


@dataclass(frozen=True)
class Corpus:
    """Texts, or rows of token ids: `column` of an Arrow table, which has at least one row."""

    name: str
    table: Any
    column: str

    def __len__(self) -> int:
        return len(self.table)

    @property
    def has_tokens(self) -> bool:
        """True if the column holds token ids."""
        return _is_tokens(self.table.schema.field(self.column).type)

    def values(self, column: str) -> Any:
        """A column of the table. Raises CommandError where one of its values is null."""
        values = self.table[column]
        if values.null_count:
            row = values.is_null().to_numpy().argmax()
            raise CommandError(f"{self.name}, row {row}: column {column!r} is null")
        return values

    def lengths(self, tokenizer: PreTrainedTokenizerBase | None, *, stored: bool = False) -> IntArray:
        """The tokens of each row, nothing truncated; of a text, with special tokens. Words without a tokenizer.

        stored: whether stored tokens that `attention_mask` masks count, too.
        """
        values = self.values(self.column)
        if self.has_tokens:
            names, kinds = self.table.column_names, self.table.schema
            has_mask = not stored and MASK in names and _is_tokens(kinds.field(MASK).type)
            try:
                if has_mask:
                    return tokens_in_batches(parts_of(self.table, (self.column, MASK)), choices=False)
                return lengths(self.table.select([self.column]), self.column)
            except (TypeError, ValueError) as error:
                raise CommandError(f"{self.name}: {one_line(error)}") from error
        counts: list[int] = []
        with progress_bar(len(values), "counting") as bar:
            for first in range(0, len(values), _CHUNK):
                texts = values.slice(first, _CHUNK).to_pylist()
                # Without warnings about rows that are too long for the model.
                rows = tokenizer(texts, return_attention_mask=False, verbose=False)["input_ids"] if tokenizer else None
                counts += map(len, map(str.split, texts) if rows is None else rows)
                bar.update(len(texts))
        return np.array(counts, np.int64)


def packages_for(options: Namespace) -> dict[str, str]:
    """The packages that reading the data needs, for `require`."""
    needed = {"datasets": "datasets"}
    return needed if options.tokenizer is None else needed | {"transformers": "transformers"}


def open_corpus(options: Namespace) -> Corpus:
    """The rows of a file, or of a folder written by `datasets.save_to_disk`: at least one. Raises CommandError."""
    import pyarrow as pa

    path, field = options.data, options.field
    name = str(path)
    if path.is_dir():
        name, table = _saved(path, options.split)
    elif options.split is not None:
        raise CommandError(f"{path}: --split is for a folder with a DatasetDict")
    elif not path.exists():
        raise CommandError(f"{path}: no such file or folder; {EXPECTED}{_how_to_save(path)}")
    elif not path.is_file() or path.suffix.lower() not in _READERS:  # a pipe might never end
        raise CommandError(f"{path}: {'' if path.is_file() else 'not a file; '}{EXPECTED}")
    else:
        table = _read(path)
    column = _chosen(table.column_names, field, name)
    kind = table.schema.field(column).type
    if not len(table):
        raise CommandError(f"{name}: there are no rows")
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind) or _is_tokens(kind)):
        expected = "expected text, or lists of token ids"
        if pa.types.is_list(kind) and pa.types.is_list(kind.value_type):
            expected += ". For rows of multiple choice, use quadrat run --max-tokens auto script.py"
        raise CommandError(f"{name}: column {column!r} holds {kind}; {expected}")
    return Corpus(name, table, column)


def load_tokenizer(name: str) -> PreTrainedTokenizerBase:
    """The tokenizer of a folder or of a name on the Hub. Raises CommandError."""
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(name, trust_remote_code=False)
    except Exception as error:  # of a folder or a server; there are many kinds
        raise CommandError(f"no tokenizer could be loaded from {name!r}: {one_line(error)}") from error


def longest_sane(tokenizer: PreTrainedTokenizerBase | None) -> int | None:
    """The most tokens in a row according to the tokenizer; None if it has no limit."""
    longest = None if tokenizer is None else tokenizer.model_max_length
    return int(longest) if longest is not None and 0 < longest <= _LONGEST_SANE else None


def _read(path: Path) -> Any:
    """The table of a file, as `datasets` reads it. Raises CommandError."""
    import datasets

    datasets.disable_progress_bars()
    datasets.logging.set_verbosity(datasets.logging.CRITICAL)  # of what it says of a file, the error says more
    method, options = _READERS[path.suffix.lower()]
    with tempfile.TemporaryDirectory() as folder:
        given = {"keep_in_memory": True, "cache_dir": folder, **options}
        try:
            loaded = getattr(datasets.Dataset, method)(glob.escape(str(path)), **given)
        except Exception as error:  # of the content of a file; there are many kinds
            raise CommandError(f"{path}: cannot be read: {one_line(error.__cause__ or error)}") from error
    return loaded.with_format("arrow")[:]


def _saved(path: Path, split: str | None) -> tuple[str, Any]:
    """The name and the table of a folder written by `save_to_disk`; its values stay in the files."""
    import datasets

    datasets.disable_progress_bars()
    try:
        loaded = datasets.load_from_disk(path)
    except IndexError as error:  # of no files at all
        raise CommandError(f"{path}: the dataset, or one of its splits, has no rows") from error
    except Exception as error:  # of the files in the folder; there are many kinds
        raise CommandError(f"{path}: {EXPECTED}: {one_line(error)}") from error
    splits = list(loaded) if isinstance(loaded, datasets.DatasetDict) else []
    if split is not None and not splits:
        raise CommandError(f"{path}: --split is for a DatasetDict, but this is a single dataset")
    if splits and split not in splits:
        raise CommandError(
            f"{path}: a DatasetDict without a split {split!r}; choose one with --split: {listed(splits)}"
        )
    name, loaded = (f"{path}, {split}", loaded[split]) if splits else (str(path), loaded)
    return name, loaded.with_format("arrow")[:]


def _how_to_save(path: Path) -> str:
    """How to make a folder of a data set, if this may be one's name on the Hub."""
    name = path.as_posix()
    if not _HUB_NAME.fullmatch(name) or path.suffix.lower() in _READERS:
        return ""
    code = f"import datasets; datasets.load_dataset('{name}').save_to_disk('{path.name}')"
    return f'. If this is a data set of the Hub, save it: python -c "{code}", and give that folder, {path.name}'


def _chosen(columns: Sequence[str], field: str | None, name: str) -> str:
    """The column to read. Raises CommandError where there is no such column."""
    column = field if field is not None else "input_ids" if "input_ids" in columns else "text"
    if columns.count(column) != 1:
        what = "no column" if column not in columns else "more than one column"
        raise CommandError(f"{name}: {what} {column!r}; choose one with --field: {listed(columns)}")
    return column


def _is_tokens(kind: Any) -> bool:
    from pyarrow import types

    is_list = types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)
    return bool(is_list and types.is_integer(kind.value_type))
