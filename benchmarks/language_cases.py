"""The named workloads of the collators that make labels, flatten, or draw random numbers."""

from collections.abc import Callable
from typing import Any

import transformers

import quadrat
from cases import MAX_LENGTH, ROWS, Case, Feature, as_numpy, as_torch, encode, pick, tokenizer

LENGTHS = (64, 128, 256, 512)


def pair(collator: str, **options: Any) -> tuple[Any, Any]:
    return getattr(transformers, collator)(tokenizer(), **options), getattr(quadrat, collator)(tokenizer(), **options)


def masked() -> Case:
    features = [encode(index, return_special_tokens_mask=True) for index in pick()]
    return Case("mlm", "masked language modelling", *pair("DataCollatorForLanguageModeling"), features)


def masked_derived() -> Case:
    features = [encode(index) for index in pick()]
    return Case(
        "mlm_derived", "the same, special tokens found by their ids", *pair("DataCollatorForLanguageModeling"), features
    )


def masked_numpy() -> Case:
    features = [encode(index, return_special_tokens_mask=True) for index in pick()]
    return Case(
        "mlm_numpy",
        "the same, NumPy arrays out",
        *pair("DataCollatorForLanguageModeling", return_tensors="np"),
        features,
    )


def masked_numpy_rows() -> Case:
    features = [as_numpy(encode(index, return_special_tokens_mask=True)) for index in pick()]
    return Case(
        "mlm_numpy_rows",
        "masked language modelling, NumPy arrays in",
        *pair("DataCollatorForLanguageModeling"),
        features,
    )


def causal() -> Case:
    features = [encode(index) for index in pick()]
    return Case("clm", "causal language modelling", *pair("DataCollatorForLanguageModeling", mlm=False), features)


def seq2seq() -> Case:
    features = [{**encode(index), "labels": encode(other)["input_ids"]} for index, other in both(pick())]
    return Case("seq2seq", "sequence to sequence", *pair("DataCollatorForSeq2Seq"), features)


def both(indices: list[int]) -> list[tuple[int, int]]:
    """Each index with another one."""
    return list(zip(indices, indices[1:] + indices[:1], strict=True))


def flattening() -> Case:
    features = [{"input_ids": encode(index)["input_ids"]} for index in pick()]
    return Case(
        "flatten",
        "flattening",
        transformers.DataCollatorWithFlattening(),
        quadrat.DataCollatorWithFlattening(),
        features,
    )


def flattening_torch_rows() -> Case:
    features = [as_torch({"input_ids": encode(index)["input_ids"]}) for index in pick()]
    return Case(
        "flatten_torch_rows",
        "flattening, torch tensors in",
        transformers.DataCollatorWithFlattening(),
        quadrat.DataCollatorWithFlattening(),
        features,
    )


def flattening_everything() -> Case:
    features = [{"input_ids": ids, "labels": list(ids)} for ids in (encode(index)["input_ids"] for index in pick())]
    options = {"return_flash_attn_kwargs": True, "return_seq_idx": True}
    return Case(
        "flatten_everything",
        "flattening with labels and every option",
        transformers.DataCollatorWithFlattening(**options),
        quadrat.DataCollatorWithFlattening(**options),
        features,
    )


def word_rows(length: int, rows: int = ROWS) -> list[Feature]:
    """Rows of one length, which is all the reference takes."""
    return [
        encode(
            index,
            max_length=length,
            padding="max_length",
            return_special_tokens_mask=True,
            return_offsets_mapping=True,
        )
        for index in pick(rows, min_length=length // 2)
    ]


def whole_words_case(length: int) -> Case:
    options = {"whole_word_mask": True, "mask_replace_prob": 1.0, "random_replace_prob": 0.0}
    return Case(
        "whole_words" if length == MAX_LENGTH else f"whole_words_{length}",
        f"whole words by offsets, {length} tokens",
        *pair("DataCollatorForLanguageModeling", **options),
        word_rows(length),
    )


def whole_words() -> Case:
    return whole_words_case(MAX_LENGTH)


def whole_words_short() -> Case:
    return whole_words_case(MAX_LENGTH // 4)


def permutation() -> Case:
    features = [{"input_ids": encode(index)["input_ids"]} for index in pick()]
    return Case(
        "permutation",
        "permutation language modelling",
        *pair("DataCollatorForPermutationLanguageModeling"),
        features,
    )


def whole_words_4() -> Case:
    """For transformers 4.x, which alone has this collator."""
    features = [{"input_ids": encode(index)["input_ids"]} for index in pick()]
    return Case("whole_words_4", "whole words by ## prefixes", *pair("DataCollatorForWholeWordMask"), features)


def builders() -> list[Callable[[], Case]]:
    if transformers.__version__.startswith("4."):
        return [whole_words_4]
    return [
        masked,
        masked_derived,
        masked_numpy,
        masked_numpy_rows,
        causal,
        seq2seq,
        flattening,
        flattening_torch_rows,
        flattening_everything,
        whole_words,
        whole_words_short,
        permutation,
    ]
