"""Tokenizers and features for masked language modelling, the odd ones included."""

import warnings
from typing import Any

import numpy as np
import transformers
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast

import quadrat
from support.strategies import MASKING_TOKENS, ROW_FORMS, PadsInItsOwnWay, features, word_level

SPECIAL = ["[PAD]", "[UNK]", "[EOS]", "[MASK]", "[CLS]", "[SEP]", "[EXTRA]"]
MASK_VOCABULARY = {token: i for i, token in enumerate([*SPECIAL, *(f"w{i}" for i in range(len(SPECIAL), 400))])}


class OwnSpecialTokens(PreTrainedTokenizerFast):
    """A tokenizer that tells special tokens in its own way."""

    def get_special_tokens_mask(self, token_ids_0: Any, *args: Any, **kwargs: Any) -> list[int]:
        return [int(token % 7 == 0) for token in token_ids_0]


def make_masking_tokenizer(*, extra: tuple[str, ...] = (), **options: Any) -> Any:
    return word_level(MASK_VOCABULARY, **{**MASKING_TOKENS, **options}, additional_special_tokens=list(extra))


def masking_tokenizers() -> st.SearchStrategy[PreTrainedTokenizerFast]:
    usual = ("input_ids", "token_type_ids", "attention_mask")
    return st.builds(
        make_masking_tokenizer,
        padding_side=st.sampled_from(["right", "right", "left"]),
        pad_token=st.sampled_from(["[PAD]"] * 5 + ["[EOS]"] * 2 + ["[MASK]", None]),
        pad_token_type_id=st.sampled_from([0, 0, 3]),
        model_input_names=st.sampled_from([usual, usual, ("input_ids", "attention_mask"), ("input_ids",), ("ids",)]),
        mask_token=st.sampled_from(["[MASK]"] * 5 + ["[NEW]"]),
        extra=st.sampled_from([(), (), ("[EXTRA]",), ("w398", "w399")]),
        cls=st.sampled_from([PreTrainedTokenizerFast] * 8 + [PadsInItsOwnWay, OwnSpecialTokens]),
    )


_IDS = st.integers(0, 399) | st.integers(0, 6) | st.sampled_from([-1, 400, 2**31, 2**40])


@st.composite
def bare_rows(draw: Any) -> list[Any]:
    """Rows of ids without names: lists, tuples, arrays or tensors."""
    count, longest = draw(st.integers(1, 5)), draw(st.integers(0, 9))
    equal = draw(st.booleans())
    rows: list[Any] = [draw(st.lists(_IDS, min_size=longest if equal else 0, max_size=longest)) for _ in range(count)]
    form = draw(st.sampled_from(["list"] * 4 + ["array", "tensor", "tuple", "int32", "tensor32", "mixed", "float"]))
    if form == "mixed":
        return [np.array(row, dtype=np.int64) if i % 2 else row for i, row in enumerate(rows)]
    if form == "float":
        return [[value + 0.5 for value in row] for row in rows]
    return [ROW_FORMS[form]([value % 400 for value in row] if "32" in form else row) for row in rows]


def masking_features() -> st.SearchStrategy[list[Any]]:
    return st.one_of(features(), features(equal=True), bare_rows())


def make_pair(
    tokenizer: Any, options: dict[str, Any], name: str = "DataCollatorForLanguageModeling", *, both: bool = True
) -> Any:
    """(the reference's collator, quadrat's), or quadrat's alone."""
    options = dict(options)
    options["mask_replace_prob"], options["random_replace_prob"] = options.pop("replacement", (0.8, 0.1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ours = getattr(quadrat, name)(tokenizer, **options)
        return (getattr(transformers, name)(tokenizer, **options), ours) if both else ours
