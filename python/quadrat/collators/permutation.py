"""`DataCollatorForPermutationLanguageModeling`: spans to predict, and who may see whom, as XLNet is trained."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from quadrat import _core
from quadrat.collators._base import MixinCollator
from quadrat.input.columns import explain
from quadrat.input.rows import SEQUENCES, first_mapping, plain
from quadrat.installed import originals
from quadrat.planning.bare_rows import stack_column, stack_rows
from quadrat.planning.diagnosis import NO_FEATURES
from quadrat.planning.fallback import FallBack, fall_back, or_fall_back, raise_clearer, refuse_philox
from quadrat.planning.masking import has_plain_special_tokens, is_plain_ids
from quadrat.planning.plan import check_device
from quadrat.ragged import Ragged
from quadrat.support.generators import numpy_origin, python_origin, torch_origin
from quadrat.support.memory import FLOAT32, INT64, Framework, address_of, empty_batch, interop

_MOST_SPANS = 1 << 12
_MOST_STARTS = _MOST_TOKENS = _core.MOST_TOKENS  # torch draws more than one word for a start among as many

_Masked = tuple[Any, Any, Any, Any]


@dataclass
class DataCollatorForPermutationLanguageModeling(MixinCollator, originals.DataCollatorForPermutationLanguageModeling):
    """Masks spans of tokens and draws an order to predict them in; a drop-in for the transformers class.

    Arguments and results are those of `transformers.DataCollatorForPermutationLanguageModeling`: `input_ids` and
    `labels`, `[rows, width]` int64, `perm_mask` and `target_mapping`, `[rows, width, width]` float32. Of features only
    `input_ids` is read; rows may be given bare, too. The numbers come from the generators the reference draws from,
    torch's for "pt", Python's and NumPy's for "np", and leave them as it would.

    Args:
        deferred: opt-in: return a `DeferredBatch`, which becomes this batch on the device it is sent to.

    Raises:
        ValueError, TypeError, KeyError, ...: what the reference raises, naming row and lengths as well.
    """

    deferred: bool = False

    _takes_bare_rows: ClassVar[bool] = True

    def __init__(self, *args: Any, deferred: bool = False, **kwargs: Any) -> None:
        """The fields of the base class, and `deferred`. Raises ValueError for `rng="philox"`."""
        refuse_philox("DataCollatorForPermutationLanguageModeling", kwargs, "its spans are drawn one after the other")
        super().__init__(*args, **kwargs)
        self.deferred = deferred

    def torch_call(self, examples: Any) -> Any:
        """Collate `examples` into torch tensors."""
        return self._collate(examples, "pt")

    def numpy_call(self, examples: Any) -> Any:
        """Collate `examples` into NumPy arrays."""
        return self._collate(examples, "np")

    def torch_mask_tokens(self, inputs: Any) -> _Masked:
        """Mask `inputs`, `[rows, width]`, in place; returns them, `perm_mask`, `target_mapping` and labels."""
        return self._mask_tokens(inputs, "pt", super().torch_mask_tokens)

    def numpy_mask_tokens(self, inputs: Any) -> _Masked:
        """As `torch_mask_tokens`, on NumPy arrays; returns a copy of the masked `inputs`."""
        return self._mask_tokens(inputs, "np", super().numpy_mask_tokens)

    def _reference(self, framework: Framework) -> Callable[[Any], Any]:
        return super().torch_call if framework == "pt" else super().numpy_call  # type: ignore[no-any-return]

    def _plan(self, examples: Any, framework: Framework) -> dict[str, Any]:
        ids = _padded_ids(self.tokenizer, examples, framework)
        mask_tokens = self.torch_mask_tokens if framework == "pt" else self.numpy_mask_tokens
        try:
            inputs, perm_mask, target_mapping, labels = mask_tokens(ids)
        except Exception as error:
            raise_clearer(error, plain(examples), self)
        return {"input_ids": inputs, "perm_mask": perm_mask, "target_mapping": target_mapping, "labels": labels}

    def _mask_tokens(self, inputs: Any, framework: Framework, reference: Any) -> _Masked:
        try:
            return _mask(self, inputs, framework)
        except FallBack as reason:
            why = str(reason)
        # A padded matrix says nothing of the features it was made of: whoever has them explains the error.
        masked: _Masked = fall_back(self, lambda _: reference(inputs), NO_FEATURES, why)
        return masked


def _padded_ids(tokenizer: Any, examples: Any, framework: Framework) -> Any:
    if not isinstance(examples, (*SEQUENCES, Ragged)) or not examples:
        raise FallBack("features are not a list")
    if first_mapping(examples) is None:
        return stack_rows(tokenizer, examples, framework, None)["input_ids"]
    collected = _core.collect(examples, ("input_ids",), interop())
    if collected is None:
        raise FallBack("features are not a list of plain mappings with 'input_ids'")
    return stack_column(tokenizer, collected[1], framework, None)["input_ids"]


def _mask(collator: Any, inputs: Any, framework: Framework) -> _Masked:
    if not is_plain_ids(inputs, framework) or inputs.ndim != 2:
        raise FallBack("the batch is not a contiguous matrix of int64")
    rows, width = inputs.shape
    if rows == 0 or width == 0 or width % 2 != 0:
        raise FallBack("the batch is empty, or its width is odd")
    tokenizer = collator.tokenizer
    if tokenizer.mask_token is None or tokenizer.pad_token is None:
        raise FallBack("the tokenizer has no mask token or no pad token")
    mask_id, pad_id = _token_id(tokenizer.mask_token_id), _token_id(tokenizer.pad_token_id)
    slack = 1 if framework == "np" else 0  # Python's randint includes its upper bound, torch's does not
    contexts = _contexts(collator.max_span_length, collator.plm_probability, slack)
    generator, shuffler = _generators(framework)
    special, flags = _functional(tokenizer, inputs, pad_id, framework)
    try:
        square = ((rows, width, width), FLOAT32)
        outputs = empty_batch(framework, (((rows, width), INT64), square, square))
    except (MemoryError, ValueError) as error:
        raise FallBack(str(error)) from error
    (labels, labels_at), (perm_mask, perm_mask_at), (target_mapping, target_mapping_at) = outputs
    failure = _core.permutation_mask(
        generator,
        shuffler,
        contexts,
        special,
        mask_id,
        rows,
        width,
        0 if flags is None else address_of(flags),
        address_of(inputs),
        labels_at,
        perm_mask_at,
        target_mapping_at,
    )
    if failure is not None:
        raise FallBack(explain(failure))
    return inputs if framework == "pt" else inputs.copy(), perm_mask, target_mapping, labels


def _token_id(token_id: Any) -> int:
    if type(token_id) is not int or not 0 <= token_id < _MOST_TOKENS:
        raise FallBack("a special token without an id, or with one far outside the vocabulary")
    return token_id


def _contexts(max_span_length: Any, probability: Any, slack: int) -> tuple[int, ...]:
    if type(max_span_length) is not int or type(probability) not in (int, float):
        raise FallBack("max_span_length is no int, or plm_probability no number")
    return _contexts_of(max_span_length + slack, probability, slack)


@functools.lru_cache(maxsize=64)
def _contexts_of(longest: int, probability: float, slack: int) -> tuple[int, ...]:
    """How many tokens a span of 1, 2, ... `longest` tokens reserves."""
    if not 1 <= longest <= _MOST_SPANS:
        raise FallBack("max_span_length is out of range")
    try:
        contexts = tuple(int(span / probability) for span in range(1, longest + 1))
    except (ArithmeticError, ValueError) as error:
        raise FallBack("plm_probability is no probability") from error
    if any(context < max(1, span - slack) for span, context in enumerate(contexts, 1)):
        raise FallBack("a span does not fit what is reserved for it")
    if contexts[-1] >= _MOST_STARTS:
        raise FallBack("plm_probability is too small")
    return contexts


def _generators(framework: Framework) -> tuple[Any, Any]:
    """Those of the spans and, where it is another, of the orders."""
    check_device(framework)
    if framework == "pt":
        spans, orders = torch_origin(None), None
    else:
        spans, orders = python_origin(), numpy_origin(None)
    if spans is None or (framework == "np" and orders is None):
        raise FallBack("the generator's draws are not known")
    return spans.generator, None if orders is None else orders.generator


def _functional(tokenizer: Any, inputs: Any, pad_id: int, framework: Framework) -> tuple[list[int], Any]:
    """Which tokens are special or padding: their ids or, where only the tokenizer can tell, a bool for each token."""
    if has_plain_special_tokens(tokenizer):
        return [pad_id, *(_token_id(token) for token in tokenizer.all_special_ids if token is not None)], None
    with or_fall_back(f"{type(tokenizer).__name__} cannot say which tokens are special"):
        masks = [tokenizer.get_special_tokens_mask(row, already_has_special_tokens=True) for row in inputs.tolist()]
        special = _bools(masks, framework)
    if special.shape != inputs.shape:
        raise FallBack(f"{type(tokenizer).__name__} says of other tokens whether they are special")
    return [], special | (inputs == pad_id)


def _bools(masks: Any, framework: Framework) -> Any:
    if framework == "np":
        return np.array(masks, dtype=bool)
    import torch

    return torch.tensor(masks, dtype=torch.bool)
