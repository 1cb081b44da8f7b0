"""Which tokens tokenizers call special: what is known of a class, and what only the tokenizer can say."""

from typing import Any

import pytest
import transformers
from transformers import ByT5Tokenizer, PerceiverTokenizer, PreTrainedTokenizerFast

from quadrat.planning.special_tokens import listed_special_ids
from support.compare import assert_identical, both
from support.masking import OwnSpecialTokens, make_masking_tokenizer

FAST = [
    name
    for name in ("PreTrainedTokenizerFast", "RemBertTokenizerFast", "BigBirdTokenizerFast", "PegasusTokenizerFast")
    if isinstance(getattr(transformers, name, None), type) and hasattr(transformers, "BigBirdTokenizerFast")
]


def said(tokenizer: Any, count: int) -> list[int]:
    mask = tokenizer.get_special_tokens_mask(list(range(count)), already_has_special_tokens=True)
    return [token for token, special in enumerate(mask) if special]


@pytest.mark.parametrize("cls", [PerceiverTokenizer, ByT5Tokenizer])
def test_classes_without_a_backend(cls):
    tokenizer = cls()
    assert sorted(listed_special_ids(tokenizer)) == said(tokenizer, len(tokenizer))


def test_fast_classes():
    assert FAST[0] == "PreTrainedTokenizerFast"
    for name in FAST:
        base = getattr(transformers, name)
        if not issubclass(base, PreTrainedTokenizerFast):
            continue
        tokenizer = make_masking_tokenizer()
        tokenizer.__class__ = base
        listed = listed_special_ids(tokenizer)
        assert listed is not None or name == "PegasusTokenizerFast", name
        assert listed is None or sorted(set(listed)) == said(tokenizer, len(tokenizer)), name
        reference, collator = both("DataCollatorForLanguageModeling", tokenizer)
        assert_identical(reference, collator, [{"input_ids": list(range(60))}, {"input_ids": list(range(30))}])


class Inherits(PerceiverTokenizer):
    """Says nothing of its own."""


class AsksAbove(PerceiverTokenizer):
    """The words of a class of transformers, in a module that is not one."""

    def get_special_tokens_mask(self, token_ids_0, token_ids_1=None, already_has_special_tokens=False):
        if already_has_special_tokens:
            return super().get_special_tokens_mask(
                token_ids_0=token_ids_0, token_ids_1=token_ids_1, already_has_special_tokens=True
            )
        return []


def test_classes_of_the_user():
    assert listed_special_ids(Inherits()) is not None
    assert listed_special_ids(AsksAbove()) is None
    assert listed_special_ids(make_masking_tokenizer(cls=OwnSpecialTokens)) is None


def test_a_method_of_the_instance():
    tokenizer = PerceiverTokenizer()
    tokenizer.get_special_tokens_mask = lambda *args, **options: [1]
    assert listed_special_ids(tokenizer) is None


def test_another_list_of_special_ids():
    class Other(PerceiverTokenizer):
        all_special_ids = property(lambda self: [3])

    assert listed_special_ids(Other()) is None
