"""Labelled real text without a download: docstrings of installed packages, or a file of the user's own."""

from __future__ import annotations

import ast
import importlib.util
import json
import math
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

# Well documented packages; the first DEFAULT_CLASSES of them that are installed become the classes.
DEFAULT_PACKAGES = (
    "torch",
    "transformers",
    "numpy",
    "sympy",
    "networkx",
    "huggingface_hub",
    "datasets",
    "matplotlib",
    "pandas",
    "hypothesis",
    "setuptools",
    "mpmath",
    "fsspec",
    "accelerate",
    "jinja2",
)
DEFAULT_CLASSES = 8

# Vendored copies belong to another package, and docstrings of tests are few and say little about the package.
_SKIPPED_FOLDERS = frozenset({"_vendor", "vendor", "vendored", "test", "tests", "testing"})
# Larger sources are generated tables: slow to parse and nearly free of docstrings.
_LARGEST_SOURCE_BYTES = 400_000
# A package's texts come from at least this many of its files where it has them, so that no file dominates a class.
_FEWEST_FILES = 40

# More distinct characters than this (the trainer's own default) are unknown to the tokenizer, the rarest first.
_LARGEST_ALPHABET = 1000
_SPECIAL_TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


@dataclass(frozen=True)
class Corpus:
    """Texts with one label each: `label_names[labels[i]]` is the class of `texts[i]`."""

    texts: list[str]
    labels: list[int]
    label_names: list[str]


def docstrings(packages: Sequence[str] | None = None, *, per_package: int = 600, min_characters: int = 80) -> Corpus:
    """Docstrings of installed packages, labelled with the package; the sources are parsed, never imported.

    At most `per_package` texts of at least `min_characters` characters for each package, spread over its files,
    without duplicates, in the same order each time. By default the packages are the first eight of
    `DEFAULT_PACKAGES` that are installed with at least half of `per_package` texts, so that classes are balanced.
    """
    if per_package < 1:
        raise ValueError(f"per_package must be at least 1, got {per_package}")
    seen: set[str] = set()
    classes: list[tuple[str, list[str]]] = []
    # A package named twice is one class.
    for package in dict.fromkeys(DEFAULT_PACKAGES if packages is None else packages):
        if packages is None and len(classes) == DEFAULT_CLASSES:
            break
        files = _source_files(package)
        if packages is not None and not files:
            raise ValueError(f"no Python sources of a package named {package!r} are installed")
        texts = _package_texts(files, per_package, min_characters, seen)
        if packages is not None and not texts:
            raise ValueError(f"package {package!r} has no docstring of {min_characters} or more characters")
        if packages is not None or len(texts) >= max(1, per_package // 2):
            classes.append((package, texts))
            seen.update(texts)
    if not classes:
        raise ValueError("no package with docstrings: name some that are installed")
    return Corpus(
        texts=[text for _, texts in classes for text in texts],
        labels=[label for label, (_, texts) in enumerate(classes) for _ in texts],
        label_names=[package for package, _ in classes],
    )


class FieldError(ValueError):
    """A line has no text in the field that was asked for; `choices` are the fields in which it has one."""

    def __init__(self, message: str, choices: list[str]) -> None:
        """Keep the choices beside the message."""
        super().__init__(message)
        self.choices = choices


def read(path: Path, *, labelled: bool = False, field: str = "text", allow_empty: bool = False) -> Corpus:
    """Texts of a UTF-8 file, one per non-empty line.

    `.txt`: the line is the text, or with `labelled` the label, a tab and the text. `.jsonl`: an object with a string
    in `field`, and with `labelled` a "label" that is a string or an integer. Without `labelled` every label is 0.
    A line that does not fit raises ValueError with its number, as does a text without a character that is not a space,
    except with `allow_empty`. So does a device or a pipe, which might never end.
    """
    suffix = path.suffix.lower()
    if suffix not in (".txt", ".jsonl"):
        raise ValueError(f"{path}: expected a file that ends in .txt or .jsonl")
    if path.exists() and not path.is_file():
        raise ValueError(f"{path}: not a file; expected one that ends in .txt or .jsonl")
    texts: list[str] = []
    labels: list[str] = []
    for number, line in _lines(path):
        where = f"{path}, line {number}"
        is_json = suffix == ".jsonl"
        text, label = _from_json(line, field, labelled, where) if is_json else _from_plain(line, labelled, where)
        if not text.strip() and not allow_empty:
            raise ValueError(f"{where}: the text is empty")
        if not _encodable(text):
            raise ValueError(f"{where}: the text has a lone surrogate, which no encoding can represent")
        texts.append(text)
        labels.append(label)
    if not texts:
        raise ValueError(f"{path}: the file has no text")
    if not labelled:
        return Corpus(texts, [0] * len(texts), ["text"])
    distinct = sorted(set(labels), key=_label_order)
    if len(distinct) < 2:
        raise ValueError(f"{path}: every text has the label {distinct[0]!r}, at least two labels are needed")
    index = {label: position for position, label in enumerate(distinct)}
    return Corpus(texts, [index[label] for label in labels], distinct)


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


def _source_files(package: str) -> list[Path]:
    """The Python sources of an installed top-level package, sorted; empty where there are none."""
    if not package.isidentifier():
        raise ValueError(f"expected the name of a top-level package, got {package!r}")
    # Of a top-level name this imports nothing.
    spec = importlib.util.find_spec(package)
    if spec is None:
        return []
    if spec.submodule_search_locations is None:
        return [Path(spec.origin)] if spec.origin is not None and spec.origin.endswith(".py") else []
    return [
        file
        for folder in spec.submodule_search_locations
        for file in sorted(Path(folder).rglob("*.py"))
        if _SKIPPED_FOLDERS.isdisjoint(file.relative_to(folder).parts)
    ]


def _package_texts(files: list[Path], per_package: int, min_characters: int, excluded: set[str]) -> list[str]:
    """At most `per_package` distinct docstrings spread over `files`, in the order of `files`."""
    per_file = math.ceil(per_package / _FEWEST_FILES)
    seen = set(excluded)
    kept: list[tuple[int, int, str]] = []
    spare: list[tuple[int, int, str]] = []
    for position in _spread(len(files)):
        taken = 0
        for order, text in enumerate(_file_docstrings(files[position])):
            if len(text) < min_characters or text in seen or not _encodable(text):
                continue
            seen.add(text)
            (kept if taken < per_file else spare).append((position, order, text))
            taken += 1
        if len(kept) >= per_package:
            break
    return [text for _, _, text in sorted((kept + spare)[:per_package])]


def _spread(count: int) -> list[int]:
    """The numbers below `count`, in an order of which every beginning is spread evenly (bits reversed)."""
    width = max(1, (count - 1).bit_length())
    return sorted(range(count), key=lambda number: f"{number:0{width}b}"[::-1])


def _file_docstrings(file: Path) -> Iterator[str]:
    """Docstrings of the module, its classes and their methods, and its functions."""
    if file.stat().st_size > _LARGEST_SOURCE_BYTES:
        return
    source = file.read_bytes()
    try:
        with warnings.catch_warnings():
            # Invalid escapes in the sources of other packages are no concern of whoever reads their docstrings.
            warnings.simplefilter("ignore", SyntaxWarning)
            warnings.simplefilter("ignore", DeprecationWarning)
            tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return
    pending: list[ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef] = [tree]
    while pending:
        node = pending.pop()
        text = ast.get_docstring(node)
        if text is not None:
            yield text.strip()
        if isinstance(node, (ast.Module, ast.ClassDef)):
            inner = [n for n in node.body if isinstance(n, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef))]
            pending.extend(reversed(inner))


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """The non-empty lines of a UTF-8 file with their numbers from 1."""
    # Split as bytes: str.splitlines would also split at form feeds and other characters within a text.
    for number, raw in enumerate(path.read_bytes().removeprefix(b"\xef\xbb\xbf").split(b"\n"), start=1):
        try:
            line = raw.removesuffix(b"\r").decode()
        except UnicodeDecodeError as error:
            raise ValueError(f"{path}, line {number}: not UTF-8 ({error})") from None
        if line.strip():
            yield number, line


def _from_plain(line: str, labelled: bool, where: str) -> tuple[str, str]:
    if not labelled:
        return line, ""
    label, tab, text = line.partition("\t")
    if not tab or not label.strip():
        raise ValueError(f"{where}: expected a label, a tab and the text")
    return text, label.strip()


def _from_json(line: str, field: str, labelled: bool, where: str) -> tuple[str, str]:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:  # the second of thousands of brackets
        raise ValueError(f"{where}: not JSON ({error})") from None
    if not isinstance(record, dict):
        raise ValueError(f"{where}: expected an object, got {type(record).__name__}")
    text = record.get(field)
    if not isinstance(text, str):
        choices = [name for name, value in record.items() if isinstance(value, str)]
        raise FieldError(f'{where}: expected an object with a string "{field}"', choices)
    if not labelled:
        return text, ""
    label = record.get("label")
    # bool is a subclass of int, and true beside 1 would be one class.
    if isinstance(label, bool) or not isinstance(label, (str, int)):
        raise ValueError(f'{where}: expected a "label" that is a string or an integer')
    return text, str(label)


def _label_order(label: str) -> tuple[bool, int, str]:
    """Integers by value and before other labels, so that 10 comes after 2."""
    is_integer = label.removeprefix("-").isdecimal()
    return not is_integer, int(label) if is_integer else 0, label


def _encodable(text: str) -> bool:
    """False for a text with lone surrogates, which a tokenizer refuses."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _most_common_characters(words: list[list[str]], count: int) -> set[str]:
    """The `count` most common characters, ties by code point."""
    counts = Counter(character for text in words for word in text for character in word)
    return set(sorted(counts, key=lambda character: (-counts[character], character))[:count])
