"""Tiny models and tokenizers, made on the spot, that stand in for those of the hub."""

import contextlib
import functools
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    BertModel,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
    set_seed,
)

from quadrat.integration.switch import Patch
from quadrat.support.wrappers import wrap_method

_SAID = "the cat sat on a mat while seven dogs in Paris were barking at an old grey postman who ran away"
WORDS = _SAID.split()
TEXTS = [" ".join(WORDS[start : start + 2 + 5 * start % 11]) for start in range(12)]
_SIZES = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}


_KINDS = ("pad", "unk", "cls", "sep", "mask")
_SPECIAL = {f"{kind}_token": f"[{kind.upper()}]" for kind in _KINDS}


def texts_of(sizes: Iterable[int]) -> list[str]:
    """Texts of so many words."""
    return [" ".join(WORDS[(at + word) % len(WORDS)] for word in range(size)) for at, size in enumerate(sizes)]


# Trained once: another time the same texts may give another vocabulary.
@functools.cache
def _pieces() -> str:
    special = list(_SPECIAL.values())
    pieces = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    pieces.pre_tokenizer = pre_tokenizers.Whitespace()
    pieces.decoder = decoders.WordPiece()
    pieces.train_from_iterator(TEXTS, trainers.WordPieceTrainer(vocab_size=120, special_tokens=special))
    ends = [("[CLS]", special.index("[CLS]")), ("[SEP]", special.index("[SEP]"))]
    pieces.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=ends
    )
    return pieces.to_str()


@functools.cache
def _pairs() -> str:
    special = ["<pad>", "<eos>"]
    pairs = Tokenizer(models.BPE())
    pairs.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    pairs.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    pairs.train_from_iterator(
        TEXTS, trainers.BpeTrainer(vocab_size=320, special_tokens=special, initial_alphabet=alphabet)
    )
    return pairs.to_str()


def encoder_tokenizer(**options: Any) -> PreTrainedTokenizerFast:
    """A tokenizer of word pieces with [CLS] and [SEP], like BERT's."""
    inputs = ["input_ids", "token_type_ids", "attention_mask"]
    settings = {"model_max_length": 64, "model_input_names": inputs, **_SPECIAL, **options}
    return PreTrainedTokenizerFast(tokenizer_object=Tokenizer.from_str(_pieces()), **settings)


def decoder_tokenizer(**options: Any) -> PreTrainedTokenizerFast:
    """A tokenizer of bytes, like GPT-2's, with a chat template."""
    settings = {"pad_token": "<pad>", "eos_token": "<eos>", "model_max_length": 64, **options}
    inputs = ["input_ids", "attention_mask"]
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_str(_pairs()), model_input_names=inputs, **settings
    )
    tokenizer.chat_template = (
        "{% for message in messages %}{{ message.role }}: {{ message.content }}\n{% endfor %}"
        "{% if add_generation_prompt %}assistant: {% endif %}"
    )
    return tokenizer


def encoder_config(**options: Any) -> BertConfig:
    return BertConfig(vocab_size=len(encoder_tokenizer()), max_position_embeddings=64, **_SIZES, **options)


def decoder(**options: Any) -> LlamaForCausalLM:
    """A tiny Llama for `decoder_tokenizer`, from the same start each time."""
    set_seed(0)
    ids = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 1}
    return LlamaForCausalLM(
        LlamaConfig(vocab_size=len(decoder_tokenizer()), num_key_value_heads=2, **_SIZES, **ids, **options)
    )


def save_encoder(folder: Path) -> None:
    """A folder that AutoModel and AutoTokenizer load."""
    set_seed(0)
    BertModel(encoder_config()).save_pretrained(folder)
    encoder_tokenizer().save_pretrained(folder)


def save_classifier(folder: Path, **options: Any) -> None:
    """A folder that AutoModelForSequenceClassification and AutoTokenizer load."""
    BertForSequenceClassification(encoder_config(**options)).save_pretrained(folder)
    encoder_tokenizer().save_pretrained(folder)


def save_hub(folder: Path) -> Path:
    """Models under the names that the documentation uses; transformers loads them from there and not from the hub."""
    for part in (decoder(), decoder_tokenizer()):
        part.save_pretrained(folder / "Qwen/Qwen2.5-0.5B")
    save_encoder(folder / "google-bert/bert-base-uncased")
    save_encoder(folder / "sentence-transformers/all-MiniLM-L6-v2")
    save_classifier(folder / "distilbert/distilbert-base-uncased-finetuned-sst-2-english")
    return folder


@contextlib.contextmanager
def undone(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """The patches that code makes in this block, undone at its end."""
    patches: list[Any] = []
    monkeypatch.setattr(Patch, "__init__", Patch.__init__)  # undone at the end of the test
    wrap_method(Patch, "__init__", lambda patch, *_: patch, lambda patch, _: patches.append(patch))
    yield patches
    while patches:
        patches.pop().undo()
