"""The texts of a file, and a tokenizer trained on them."""

from __future__ import annotations

import csv
import functools
import io
import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

# More distinct characters than this (the trainer's own default) are unknown to the tokenizer, the rarest first.
_LARGEST_ALPHABET = 1000
_SPECIAL_TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


class FieldError(ValueError):
    """There is no text in the field that was asked for; `choices` are the fields that have one."""

    def __init__(self, message: str, choices: list[str]) -> None:
        super().__init__(message)
        self.choices = choices


def read_texts(path: Path, *, field: str = "text") -> list[str]:
    """Texts of a UTF-8 file, at least one. By its ending:

    `.txt`: a text in each line that is not empty. `.jsonl`: an object in each line, with a string in `field`. `.json`:
    a list of such objects, or what `.jsonl` holds. `.csv`, `.tsv`: the first line names the columns, and `field` is one
    of them. What does not fit raises ValueError with the number of its line or object. So does a device or a pipe,
    which might never end.
    """
    if path.exists() and not path.is_file():
        raise ValueError(f"{path}: not a file; expected one that ends in {ENDINGS}")
    reader = _READERS.get(path.suffix.lower())
    if reader is None:
        raise ValueError(f"{path}: expected a file that ends in {ENDINGS}")
    texts: list[str] = []
    for where, text in reader(path, _decoded(path), field):
        try:
            text.encode()
        except UnicodeEncodeError:
            raise ValueError(f"{where}: the text has a lone surrogate, which UTF-8 cannot represent") from None
        texts.append(text)
    if not texts:
        raise ValueError(f"{path}: the file has no text")
    return texts


def _decoded(path: Path) -> str:
    data = path.read_bytes()
    try:
        return data.decode().removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ValueError(f"{path}, line {line}: not UTF-8 ({error})") from None


# What readers yield: where a text is, and the text.
Found = Iterator[tuple[str, str]]


def _lines(path: Path, content: str, field: str = "") -> Found:
    del field
    # str.splitlines would also split at form feeds and other characters within a text.
    for number, line in enumerate(content.split("\n"), start=1):
        if line.strip():
            yield f"{path}, line {number}", line.removesuffix("\r")


def _json_lines(path: Path, content: str, field: str) -> Found:
    for where, line in _lines(path, content):
        yield where, _text_of(_parsed(line, where), field, where)


def _json(path: Path, content: str, field: str) -> Found:
    try:
        records = json.loads(content)
    except (ValueError, RecursionError):  # an object in each line, or an error that has the number of its line
        yield from _json_lines(path, content, field)
        return
    if isinstance(records, dict):
        records = [records]
    if not isinstance(records, list):
        raise ValueError(f"{path}: expected a list of objects, got {type(records).__name__}")
    for number, record in enumerate(records):
        where = f"{path}, object {number}"
        yield where, _text_of(record, field, where)


def _csv(path: Path, content: str, field: str, *, delimiter: str = ",") -> Found:
    csv.field_size_limit(max(csv.field_size_limit(), len(content)))
    rows = csv.reader(io.StringIO(content, newline=""), delimiter=delimiter, strict=True)
    try:
        names = next(rows, [])
        if names and field not in names:
            raise FieldError(f"{path}, line 1: no column {field!r}", names)
        for row in rows:
            where = f"{path}, line {rows.line_num}"
            if row and len(row) != len(names):
                raise ValueError(f"{where}: the first line names {len(names)} columns, and this row has {len(row)}")
            if row:
                yield where, row[names.index(field)]
    except csv.Error as error:
        raise ValueError(f"{path}, line {rows.line_num}: not CSV ({error})") from None


_READERS: dict[str, Callable[[Path, str, str], Found]] = {
    ".txt": _lines,
    ".csv": _csv,
    ".tsv": functools.partial(_csv, delimiter="\t"),
    ".json": _json,
    ".jsonl": _json_lines,
}
# As in error messages; Parquet is not text, and is read elsewhere.
ENDINGS = f"{', '.join(_READERS)} or .parquet"


def _parsed(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:  # the second of thousands of brackets
        raise ValueError(f"{where}: not JSON ({error})") from None


def _text_of(record: Any, field: str, where: str) -> str:
    if not isinstance(record, dict):
        raise ValueError(f"{where}: expected an object, got {type(record).__name__}")
    text = record.get(field)
    if not isinstance(text, str):
        choices = [name for name, value in record.items() if isinstance(value, str)]
        raise FieldError(f'{where}: expected an object with a string "{field}"', choices)
    return text


def train_tokenizer(texts: Sequence[str], *, vocab_size: int = 8000, max_length: int = 512) -> PreTrainedTokenizerBase:
    """A BERT-like WordPiece tokenizer trained on `texts`, the same one each time.

    At most `vocab_size` entries; truncation is at `max_length` tokens, [CLS] and [SEP] included. Gives input_ids,
    token_type_ids and attention_mask.
    """
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    normalizer = normalizers.BertNormalizer(lowercase=True)
    pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    words = [[word for word, _ in pre_tokenizer.pre_tokenize_str(normalizer.normalize_str(text))] for text in texts]
    alphabet = _most_common_characters(words, min(_LARGEST_ALPHABET, max(1, vocab_size // 4)))
    words = [[word for word in text if alphabet.issuperset(word)] for text in words]
    # The trainer numbers inner characters in the order of a randomly seeded hash map, and breaks ties between merges
    # by these numbers. As special tokens they are numbered in the given order, before it looks at the text.
    inner = sorted({"##" + character for text in words for word in text for character in word[1:]})
    trainer = trainers.WordPieceTrainer(
        vocab_size=vocab_size,
        special_tokens=_SPECIAL_TOKENS + inner,
        limit_alphabet=len(alphabet),
        show_progress=False,
    )
    trained = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    trained.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    trained.train_from_iterator((" ".join(text) for text in words), trainer=trainer, length=len(words))

    # A second tokenizer from the vocabulary, in which the inner characters are no special tokens.
    tokenizer = Tokenizer(models.WordPiece(vocab=trained.get_vocab(), unk_token="[UNK]"))
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS]:0 $A:0 [SEP]:0",
        pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1",
        special_tokens=[(token, _SPECIAL_TOKENS.index(token)) for token in ("[CLS]", "[SEP]")],
    )
    # The constructor has no annotations in transformers.
    wrap: Callable[..., PreTrainedTokenizerBase] = PreTrainedTokenizerFast
    return wrap(
        tokenizer_object=tokenizer,
        model_max_length=max_length,
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
    )


def _most_common_characters(words: list[list[str]], count: int) -> set[str]:
    """The `count` most common characters, ties by code point."""
    counts = Counter(character for text in words for word in text for character in word)
    return set(sorted(counts, key=lambda character: (-counts[character], character))[:count])
