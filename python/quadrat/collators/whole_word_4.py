"""`DataCollatorForWholeWordMask` of transformers 4.x; an ImportError with 5.x, which has none like it."""

from __future__ import annotations

import inspect
import random
import warnings
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import transformers

from quadrat import _core
from quadrat.collators._base import MixinCollator, with_used_options
from quadrat.installed import originals
from quadrat.installed.imitated import BARE_ROWS, Imitation, code_of
from quadrat.installed.originals import DataCollatorForWholeWordMask as Reference  # type: ignore[attr-defined]
from quadrat.masking.language_modeling import IdRows, masking_facts, origin
from quadrat.masking.vocabulary import vocabulary_of
from quadrat.planning.facts import ABSENT, ATTRIBUTE, ENTRY, OWN_ABSENT, TYPE, Fact, joined_facts, own_facts
from quadrat.planning.fallback import NO_FEATURES, FallBack, Reason, raise_clearer
from quadrat.planning.plan_cache import Plan, PlanKey, planned
from quadrat.support import columns as col
from quadrat.support.generators import NUMPY_LEGACY, Origin, create_generator, python_origin
from quadrat.support.kinds import INT64, KINDS, Framework

_NAME = "DataCollatorForWholeWordMask"
_NAMES = ("_whole_word_mask", "_shuffle", "torch_mask_tokens", "numpy_mask_tokens")
_METHODS = {name: getattr(Reference, name) for name in _NAMES}

# Kinds of arrays that every torch and NumPy makes int64 of without a word.
_ARRAY_KINDS = sum(1 << KINDS.index(name) for name in ("int8", "uint8", "int16", "int32", "int64"))
_MOST_TOKENS = _core.MOST_TOKENS  # random tokens are drawn from fewer, see csrc/kernels/rng/draws.hpp


class DataCollatorForWholeWordMask(MixinCollator, Reference):
    """Mask whole words, where "##..." continues a word; replaces the transformers class.

    Features are mappings with `input_ids`, or bare rows of ids. A column `chinese_ref` may name the positions that
    continue the word before them; other columns are left out. The result is a dict of `input_ids` and `labels`, int64,
    `[rows, width]`; labels are -100 where nothing is masked. Words are shuffled by Python's `random`, or with a `seed`
    by the collator's own generator. Errors are those of transformers, with hints.

    Args:
        tokenizer: a tokenizer of transformers with a mask token.
        mlm, whole_word_mask: ignored, as in transformers: words are always masked.
        mlm_probability, mask_replace_prob, random_replace_prob, pad_to_multiple_of, return_tensors, seed, deferred: as
            in `DataCollatorForLanguageModeling`, of words.

    Examples:
        >>> import quadrat, tokenizers, transformers
        >>> words = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4, "bark": 5, "##ing": 6, "dogs": 7}
        >>> pieces = tokenizers.Tokenizer(tokenizers.models.WordPiece(words))
        >>> pieces.normalizer = tokenizers.normalizers.BertNormalizer()
        >>> tokenizer = transformers.BertTokenizerFast(tokenizer_object=pieces)
        >>> collator = quadrat.DataCollatorForWholeWordMask(tokenizer, mask_replace_prob=1.0, random_replace_prob=0.0)
        >>> batch = collator([[2, 7, 5, 6, 3]])
        >>> masked = batch["input_ids"] == tokenizer.mask_token_id
        >>> bool(masked[0, 2] == masked[0, 3])  # "bark" and "##ing" are masked together
        True
    """

    _imitates: ClassVar[Imitation] = Imitation(
        _NAME,
        code_of(_NAME, "DataCollatorForLanguageModeling") + BARE_ROWS,
        form="masked",
        attributes=("generator", "deferred"),
    )
    _takes_bare_rows: ClassVar[bool] = True
    _lacks: ClassVar[Mapping[str, str]] = {
        "rng": "words are shuffled, not drawn one by one; DataCollatorForLanguageModeling(whole_word_mask=True) has it"
    }

    def __init__(self, *args: Any, deferred: bool = False, **kwargs: Any) -> None:
        try:
            super().__init__(*args, **kwargs)
        except Exception as error:
            raise_clearer(error, NO_FEATURES, self)
        self.deferred = deferred

    __init__.__signature__ = inspect.signature(__init__).replace(  # type: ignore[attr-defined]
        parameters=[
            *inspect.signature(originals.DataCollatorForLanguageModeling.__init__).parameters.values(),
            inspect.signature(__init__).parameters["deferred"],
        ]
    )

    def __repr__(self) -> str:
        return with_used_options(super().__repr__(), self, DataCollatorForWholeWordMask, ("deferred",))

    def numpy_call(self, examples: Any) -> dict[str, Any]:
        """Collate and mask `examples` into NumPy arrays."""
        return self._collate(examples, "np")

    def _collate(self, features: Any, framework: Any) -> dict[str, Any]:
        if self.seed and self.generator is None:
            create_generator(self)
        return super()._collate(features, framework)

    def _plan(self, features: Any, framework: Framework) -> Any:
        cls = type(self)
        for name, method in _METHODS.items():
            if getattr(cls, name) is not method or name in self.__dict__:
                raise FallBack(f"{cls.__name__} has its own {name}", f"do not override {name}")
        facts = _facts(self, framework)
        # "chinese_ref": positions that continue the word before.
        spec = _Words.of(self, framework, self.pad_to_multiple_of, optional={"chinese_ref": False}, facts=facts)
        return spec.make(self, features)


def _facts(collator: Any, framework: Framework) -> tuple[Fact, ...] | None:
    """All that `_Words.values` depends on besides the batch; None where that is not known."""
    cls, tokenizer = type(collator), collator.tokenizer
    state, names = getattr(tokenizer, "__dict__", {}), ("pad_token", "pad_token_id")
    masked = masking_facts(collator, framework, "torch_call" if framework == "pt" else "numpy_call")
    known = joined_facts(own_facts(collator), masked)
    if known is None or "padding_side" not in state or any(hasattr(type(tokenizer), name) for name in names):
        return None
    return (
        *known,
        *((OWN_ABSENT, None, name, None) for name in _METHODS),
        *((ATTRIBUTE, cls, name, method) for name, method in _METHODS.items()),
        (TYPE, tokenizer, None, type(tokenizer)),
        (ATTRIBUTE, type(tokenizer), "_convert_id_to_token", type(tokenizer)._convert_id_to_token),
        (ABSENT, state, "_convert_id_to_token", None),
        *((ABSENT, state, name, None) for name in names),
        (ENTRY, state, "padding_side", state["padding_side"]),
        (ATTRIBUTE, random, "shuffle", random.shuffle),
    )


def _labels(collator: Any, framework: Framework, pad_id: int | None, *, joined: bool) -> _core.WordLabels:
    vocab_size, pieces = vocabulary_of(collator, pad_id)
    shuffle, draws = _origins(collator, framework)
    share, mask, random_words = collator.mlm_probability, collator.mask_replace_prob, collator.random_replace_prob
    if any(type(value) is not float or not 0 <= value <= 1 for value in (share, mask, random_words)):
        raise FallBack("a probability is not a float from 0 to 1", "give floats from 0 to 1")
    of_rest = random_words / (1 - mask) if mask != 1 and random_words != 0 else 0.0
    if (np.float32(of_rest) if framework == "pt" else of_rest) > 1:  # rounding may take it there
        raise FallBack("mask_replace_prob and random_replace_prob are more than 1 together", "make them smaller")
    mask_token = collator.tokenizer.mask_token
    mask_id = None if mask_token is None else collator.tokenizer.convert_tokens_to_ids(mask_token)
    if type(mask_id) is not int or not 0 <= mask_id < _MOST_TOKENS or not 0 < vocab_size < _MOST_TOKENS:
        raise FallBack("the tokenizer has no mask token with an id", "set tokenizer.mask_token")
    replacement = draws.replacement(mask, random_words, mask_id, vocab_size)
    of_bert = isinstance(collator.tokenizer, (transformers.BertTokenizer, transformers.BertTokenizerFast))
    before = None if of_bert else _warn_of_other_tokenizers
    return _core.WordLabels(shuffle, *draws[:2], share, replacement, pieces, joined, before)


def _warn_of_other_tokenizers() -> None:
    """Warn, for each row as the reference does, that words are those of tokens that begin with "##" as BERT's do."""
    warnings.warn(
        "DataCollatorForWholeWordMask is only suitable for BertTokenizer-like tokenizers. "
        "Please refer to the documentation for more information.",
        stacklevel=2,
    )


def _origins(collator: Any, framework: Framework) -> tuple[Any, Origin]:
    """The generator that orders the words, None for that of all else, and the one of all else."""
    draws, shuffle = origin(collator, framework), python_origin()
    if draws is None or shuffle is None:
        raise FallBack("the generator's draws are not known", "give a seed, or a generator of the CPU")
    if collator.seed is None:
        return shuffle.generator, draws
    if collator.return_tensors != framework or draws.generator_type == NUMPY_LEGACY:
        raise FallBack(f"seed={collator.seed!r} made no generator for {framework!r}", "set return_tensors")
    return None, draws


@planned
def _word_plan(key: PlanKey) -> Plan:
    shape, *joined = col.column_shapes(key.signature)
    if shape.forms == col.LIST:
        # Nothing, on the left, overwrites all.
        whole = shape.kinds == col.PYTHON_INTS and not (shape.empty and key.options[0])
    elif shape.forms & ~(col.DERIVED if key.framework == "pt" else 0) == col.ARRAY:
        converts = key.framework == "pt" and not shape.kinds & ~_ARRAY_KINDS
        whole = not shape.empty and (shape.kinds == col.PYTHON_INTS or converts)
    else:
        tensors = key.framework == "pt" and shape.forms == col.TENSOR and shape.kinds == col.PYTHON_INTS
        whole = not shape.empty and tensors
    if not whole and not shape.kinds and not shape.forms & ~col.ROWS:
        raise FallBack("all rows are empty", "leave them out")
    if not whole:
        raise FallBack("'input_ids' are not rows of whole numbers, all in one form", "give lists of ints")
    if key.framework == "pt" and shape.backward:
        raise FallBack("an array that torch does not take", "give numpy.ascontiguousarray(row)")
    if any(column.forms & ~(col.LIST | col.MEMORY_ROWS) or column.kinds & ~_ARRAY_KINDS for column in joined):
        raise FallBack("'chinese_ref' are not rows of whole numbers", "give lists of ints")
    return Plan((("input_ids", 0, col.PAD, INT64), ("labels", 0, col.LABELS, INT64)))


class _Words(IdRows):
    plan = staticmethod(_word_plan)
    mismatch = "features are not a list of plain mappings with 'input_ids'", "give dicts with the same keys"

    def values(self, collator: Any, key: PlanKey) -> dict[str, Any]:
        pad_id = None if collator.tokenizer.pad_token is None else collator.tokenizer.pad_token_id
        needs_pad = collator.tokenizer.pad_token is not None or not col.column_shapes(key.signature)[0].full
        if needs_pad and (type(pad_id) is not int or not 0 <= pad_id < _MOST_TOKENS):
            raise FallBack("the tokenizer has no pad token with an id", "set tokenizer.pad_token")
        return {"input_ids": pad_id, "labels": _labels(collator, key.framework, pad_id, joined=len(key.names) > 1)}

    def failed(self, collator: Any, names: Any, step: Any, failure: Any) -> Reason:
        return f"{col.explain(failure)}, or has no token", "give ids of the vocabulary"
