"""Collators that make labels, flatten, or draw random numbers; with transformers 4, the one that only it has."""

from functools import partial
from typing import Any

from benchmarks.jobs import Job, timed, timed_alone
from benchmarks.workload import MAX_LENGTH, OLD, as_numpy, as_torch, by_name, encode, only_ids, pick, rows

LANGUAGE, FLAT = "DataCollatorForLanguageModeling", "DataCollatorWithFlattening"


def seq2seq() -> Job:
    indices = pick()
    others = indices[1:] + indices[:1]
    features = [
        {**encode(index), "labels": encode(other)["input_ids"]} for index, other in zip(indices, others, strict=True)
    ]
    return by_name("DataCollatorForSeq2Seq", features)


def flattening_everything() -> Job:
    features = [{"input_ids": row["input_ids"], "labels": list(row["input_ids"])} for row in only_ids()]
    return by_name(FLAT, features, return_flash_attn_kwargs=True, return_seq_idx=True)


def whole_words(length: int) -> Job:
    """Rows of one length, which is all the reference takes."""
    options: Any = {"max_length": length, "padding": "max_length", "return_offsets_mapping": True}
    indices = pick(min_length=length // 2)
    features = [encode(index, return_special_tokens_mask=True, **options) for index in indices]
    return by_name(LANGUAGE, features, whole_word_mask=True, mask_replace_prob=1.0, random_replace_prob=0.0)


special = partial(rows, return_special_tokens_mask=True)
CASES = {
    "masked language modelling": lambda: by_name(LANGUAGE, special()),
    "the same, special tokens found by their ids": lambda: by_name(LANGUAGE, rows()),
    "the same, NumPy arrays out": lambda: by_name(LANGUAGE, special(), return_tensors="np"),
    "masked language modelling, NumPy arrays in": lambda: by_name(LANGUAGE, list(map(as_numpy, special()))),
    "causal language modelling": lambda: by_name(LANGUAGE, rows(), mlm=False),
    "sequence to sequence": seq2seq,
    "flattening": lambda: by_name(FLAT, only_ids()),
    "flattening, torch tensors in": lambda: by_name(FLAT, list(map(as_torch, only_ids()))),
    "flattening with labels and every option": flattening_everything,
    "whole words by offsets, 512 tokens": lambda: whole_words(MAX_LENGTH),
    "whole words by offsets, 128 tokens": lambda: whole_words(MAX_LENGTH // 4),
    "permutation language modelling": lambda: by_name("DataCollatorForPermutationLanguageModeling", only_ids()),
}
if OLD:
    CASES = {"whole words by ## prefixes": lambda: by_name("DataCollatorForWholeWordMask", only_ids())}
test_cold = timed(CASES)
test_warm = timed_alone(CASES, small=1, said_as="warm_ns")
