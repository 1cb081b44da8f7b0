"""`DataCollatorForPermutationLanguageModeling`: spans to predict, and which tokens each token may see, as for XLNet."""

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from quadrat import _core
from quadrat.collators._base import MixinCollator
from quadrat.input.rows import plain
from quadrat.installed import originals
from quadrat.installed.imitated import BARE_ROWS, Imitation, code_of
from quadrat.masking.language_modeling import IdRows, is_plain_ids
from quadrat.masking.vocabulary import listed_special_ids
from quadrat.planning.facts import padding_facts
from quadrat.planning.fallback import NO_FEATURES, FallBack, fall_back, or_fall_back, raise_clearer, require_known
from quadrat.planning.plan_cache import check_device
from quadrat.support.columns import explain
from quadrat.support.generators import TORCH_DOUBLE, numpy_origin, python_origin, torch_origin
from quadrat.support.kinds import FLOAT32, INT64, Framework
from quadrat.support.memory import address_of, empty_batch

_MOST_SPANS = 1 << 12
_MOST_STARTS = _MOST_TOKENS = _core.MOST_TOKENS  # torch draws more than one word for a start among as many

Masked = tuple[Any, Any, Any, Any]  # inputs, perm_mask, target_mapping and labels


_NAME = "DataCollatorForPermutationLanguageModeling"


@dataclass
class DataCollatorForPermutationLanguageModeling(MixinCollator, originals.DataCollatorForPermutationLanguageModeling):
    """Mask spans of tokens and draw the order in which to predict them; replaces the transformers class.

    The result is that of `transformers.DataCollatorForPermutationLanguageModeling`: `input_ids` and `labels`, `[rows,
    width]` int64, `perm_mask` and `target_mapping`, `[rows, width, width]` float32. Only `input_ids` of the features
    are read; features may also be bare rows of token ids. Random numbers come from the generators that transformers
    uses, torch's for "pt", Python's and NumPy's for "np", and leave them in the same state. Errors, for example for
    rows of odd length, are those of transformers, with the row and its length.

    Args:
        tokenizer: a tokenizer of transformers with a mask token and a padding token.
        plm_probability: the ratio of the length of a masked span to the length of its context.
        max_span_length: the length of the longest span, in tokens.
        return_tensors, deferred: as in `DataCollatorWithPadding`.

    Examples:
        >>> import quadrat, tokenizers
        >>> from transformers import PreTrainedTokenizerFast
        >>> words = tokenizers.Tokenizer(tokenizers.models.WordLevel({"[PAD]": 0, "[MASK]": 1, "a": 2, "b": 3, "c": 4}))
        >>> tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, pad_token="[PAD]", mask_token="[MASK]")
        >>> batch = quadrat.DataCollatorForPermutationLanguageModeling(tokenizer)([[2, 3, 4, 3], [3, 3, 2, 4]])
        >>> {name: tuple(values.shape) for name, values in batch.items()}
        {'input_ids': (2, 4), 'perm_mask': (2, 4, 4), 'target_mapping': (2, 4, 4), 'labels': (2, 4)}
    """

    deferred: bool = False

    _imitates: ClassVar[Imitation] = Imitation(
        _NAME, code_of(_NAME) + BARE_ROWS, form="masked", unguarded=("plm_probability", "max_span_length")
    )
    _takes_bare_rows: ClassVar[bool] = True
    _lacks: ClassVar[Mapping[str, str]] = {"rng": "its spans are drawn one after the other"}

    def numpy_call(self, examples: Any) -> dict[str, Any]:
        """Collate `examples` into NumPy arrays."""
        return self._collate(examples, "np")

    def torch_mask_tokens(self, inputs: Any) -> Masked:
        """Mask `inputs`, `[rows, width]`, in place; returns them, `perm_mask`, `target_mapping` and labels."""
        return self._mask_tokens(inputs, "pt", super().torch_mask_tokens)

    def numpy_mask_tokens(self, inputs: Any) -> Masked:
        """As `torch_mask_tokens`, on NumPy arrays; returns a copy of the masked `inputs`."""
        return self._mask_tokens(inputs, "np", super().numpy_mask_tokens)

    def _plan(self, examples: Any, framework: Framework) -> dict[str, Any]:
        return _Permuted.of(self, framework, facts=padding_facts(self)).make(self, examples)  # type: ignore[no-any-return]

    def _mask_tokens(self, inputs: Any, framework: Framework, reference: Any) -> Masked:
        try:
            require_known(self._imitates, framework)
            return _mask_spans(self, inputs, framework)
        except FallBack as reason:
            why = reason.args
        # A padded matrix says nothing of the features it was made of: whoever has them explains the error.
        return fall_back(self, lambda _: reference(inputs), NO_FEATURES, why)  # type: ignore[no-any-return]


class _Permuted(IdRows):
    def finish(self, collator: Any, batch: Any, features: Any) -> Any:
        mask_tokens = collator.torch_mask_tokens if self.framework == "pt" else collator.numpy_mask_tokens
        try:
            inputs, perm_mask, target_mapping, labels = mask_tokens(batch["input_ids"])
        except Exception as error:
            raise_clearer(error, plain(features), collator)
        return {"input_ids": inputs, "perm_mask": perm_mask, "target_mapping": target_mapping, "labels": labels}


def _mask_spans(collator: Any, inputs: Any, framework: Framework) -> Masked:
    """Mask spans of `inputs`, `[rows, width]`, a tensor in place. Raises FallBack before it draws or writes."""
    if not is_plain_ids(inputs, framework) or inputs.ndim != 2:
        raise FallBack("the batch is not a contiguous matrix of int64", "give int64 ids, contiguous on the CPU")
    rows, width = inputs.shape
    if rows == 0 or width == 0 or width % 2 != 0:
        raise FallBack("the batch is empty, or its width is odd", "give rows of an even number of tokens")
    tokenizer = collator.tokenizer
    if tokenizer.mask_token is None or tokenizer.pad_token is None:
        raise FallBack("the tokenizer lacks a token", "set tokenizer.mask_token and tokenizer.pad_token")
    mask_id, pad_id = _token_id(tokenizer.mask_token_id), _token_id(tokenizer.pad_token_id)
    slack = 1 if framework == "np" else 0  # Python's randint includes its upper bound, torch's does not
    longest, share = collator.max_span_length, collator.plm_probability
    if type(longest) is not int or type(share) not in (int, float):
        raise FallBack("max_span_length is not an int, or plm_probability is not a number", "give an int, and a number")
    contexts = _contexts(longest + slack, share, slack)
    generator, shuffler = _generators(framework)
    special, flags = _functional(tokenizer, inputs, pad_id, framework)
    try:
        square = ((rows, width, width), FLOAT32)
        outputs = empty_batch(framework, (((rows, width), INT64), square, square))
    except (MemoryError, ValueError) as error:
        raise FallBack(str(error), "make smaller batches, or shorter rows") from error
    (labels, perm_mask, target_mapping), places = zip(*outputs, strict=True)
    drawn = generator, shuffler, contexts, special, mask_id, rows, width
    flags_at = 0 if flags is None else address_of(flags)
    failure = _core.permutation_mask(*drawn, flags_at, address_of(inputs), *places)
    if failure is not None:
        raise FallBack(explain(failure))
    return inputs if framework == "pt" else inputs.copy(), perm_mask, target_mapping, labels


def _token_id(token_id: Any) -> int:
    if type(token_id) is not int or not 0 <= token_id < _MOST_TOKENS:
        raise FallBack("a special token has no id in the vocabulary", "add it with tokenizer.add_special_tokens")
    return token_id


@functools.lru_cache(maxsize=64)
def _contexts(longest: int, probability: float, slack: int) -> tuple[int, ...]:
    """How many tokens a span of 1, 2, ... `longest` tokens reserves."""
    if not 1 <= longest <= _MOST_SPANS:
        raise FallBack("max_span_length is out of range", f"give 1 to {_MOST_SPANS}")
    try:
        contexts = tuple(int(span / probability) for span in range(1, longest + 1))
    except (ArithmeticError, ValueError) as error:
        raise FallBack("plm_probability is not a probability", "give a number above 0, for example 1/6") from error
    if any(context < max(1, span - slack) for span, context in enumerate(contexts, 1)):
        raise FallBack("a span does not fit what is reserved for it", "give a plm_probability up to 1")
    if contexts[-1] >= _MOST_STARTS:
        raise FallBack("plm_probability is too small", "give a larger one, for example 1/6")
    return contexts


def _generators(framework: Framework) -> tuple[Any, Any]:
    check_device(framework)
    if framework == "pt":
        spans, orders = torch_origin(None), None
    else:
        spans, orders = python_origin(), numpy_origin(None)
    if spans is None or spans.generator_type == TORCH_DOUBLE or (framework == "np" and orders is None):
        raise FallBack("the generator's draws are not known", "call torch.set_default_dtype(torch.float32)")
    return spans.generator, None if orders is None else orders.generator


def _functional(tokenizer: Any, inputs: Any, pad_id: int, framework: Framework) -> tuple[list[int], Any]:
    """Which tokens are special or padding: their ids or, where only the tokenizer can tell, a bool for each token."""
    listed = listed_special_ids(tokenizer)
    if listed is not None:
        return [pad_id, *map(_token_id, listed)], None
    padding = inputs == pad_id
    with or_fall_back("get_special_tokens_mask of the tokenizer fails", "do not override it"):
        masks = [tokenizer.get_special_tokens_mask(row, already_has_special_tokens=True) for row in inputs.tolist()]
        special = np.array(masks, dtype=bool) if framework == "np" else padding.new_tensor(masks)
    if special.shape != inputs.shape:
        raise FallBack("get_special_tokens_mask of the tokenizer is of another length", "do not override it")
    return [], special | padding
