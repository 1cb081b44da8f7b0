"""Labelled texts without a download, docstrings of installed packages or a file of your own; a tokenizer of texts."""

from __future__ import annotations

import ast
import csv
import importlib.util
import math
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

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

__all__ = ["Corpus", "docstrings", "labelled", "train_tokenizer"]


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


def labelled(path: Path) -> Corpus:
    """Texts and labels of a `.jsonl` file with the fields "text" and "label", or of lines "label, tab, text"."""
    if path.suffix.lower() == ".jsonl":
        table = pd.read_json(path, lines=True, dtype=False)
    else:
        options = {"sep": "\t", "quoting": csv.QUOTE_NONE, "dtype": str, "keep_default_na": False}  # "null" is a text
        table = pd.read_csv(path, names=["label", "text"], skip_blank_lines=False, **options)
    table = table.reindex(columns=["label", "text"])
    missing = table.isna() | (table.astype(str).apply(lambda column: column.str.strip()) == "")
    blank = missing.all(axis=1)
    if (incomplete := missing.any(axis=1) & ~blank).any() or blank.all():
        raise ValueError(f"{path}, entry {int(incomplete.argmax()) + 1}: expected a label and a text")
    table = table[~blank].astype(str)
    labels, names = pd.factorize(table["label"], sort=True)
    return Corpus(table["text"].tolist(), labels.tolist(), names.tolist())


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


def _encodable(text: str) -> bool:
    """False for a text with lone surrogates, which a tokenizer refuses."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def train_tokenizer(texts: Sequence[str], *, vocab_size: int = 8000, max_length: int = 512) -> PreTrainedTokenizerBase:
    """A BERT-like WordPiece tokenizer trained on `texts`, the same one each time.

    At most `vocab_size` entries; truncation is at `max_length` tokens, [CLS] and [SEP] included. Gives input_ids,
    token_type_ids and attention_mask.
    """
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
    return PreTrainedTokenizerFast(
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
