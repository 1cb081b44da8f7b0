"""Texts of a file, one per line, and a tokenizer trained on them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

# More distinct characters than this (the trainer's own default) are unknown to the tokenizer, the rarest first.
_LARGEST_ALPHABET = 1000
_SPECIAL_TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


class FieldError(ValueError):
    """A line has no text in the field that was asked for; `choices` are the fields in which it has one."""

    def __init__(self, message: str, choices: list[str]) -> None:
        super().__init__(message)
        self.choices = choices


def read_texts(path: Path, *, field: str = "text") -> list[str]:
    """Texts of a UTF-8 file, one per line that is not empty.

    `.txt`: the line is the text. `.jsonl`: an object with a string in `field`. A line that does not fit raises
    ValueError with its number. So does a device or a pipe, which might never end.
    """
    suffix = path.suffix.lower()
    if suffix not in (".txt", ".jsonl"):
        raise ValueError(f"{path}: expected a file that ends in .txt or .jsonl")
    if path.exists() and not path.is_file():
        raise ValueError(f"{path}: not a file; expected one that ends in .txt or .jsonl")
    texts: list[str] = []
    # Split as bytes: str.splitlines would also split at form feeds and other characters within a text.
    for number, raw in enumerate(path.read_bytes().removeprefix(b"\xef\xbb\xbf").split(b"\n"), start=1):
        where = f"{path}, line {number}"
        try:
            line = raw.removesuffix(b"\r").decode()
            if line.strip():
                texts.append(line if suffix == ".txt" else _from_json(line, field, where))
                texts[-1].encode()
        except UnicodeDecodeError as error:
            raise ValueError(f"{where}: not UTF-8 ({error})") from None
        except UnicodeEncodeError:
            raise ValueError(f"{where}: the text has a lone surrogate, which no encoding can represent") from None
    if not texts:
        raise ValueError(f"{path}: the file has no text")
    return texts


def _from_json(line: str, field: str, where: str) -> str:
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
