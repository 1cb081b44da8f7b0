"""Language modelling: batches of padded or joined ids, bare rows of them too, and the labels made from them."""

import dataclasses
import functools
from typing import Any, Self

import numpy as np
import torch

from quadrat import _core
from quadrat.input.items import documents_of, is_packed
from quadrat.input.rows import MAIN, SEQUENCES, names_of, rows_of_columns
from quadrat.installed import imitated
from quadrat.masking import philox
from quadrat.masking.vocabulary import length_facts, length_of, listed_special_ids
from quadrat.ops._philox import PhiloxOptions, seed_of
from quadrat.ops.mask_tokens import write_labels
from quadrat.planning import facts as fact
from quadrat.planning.facts import Fact, padding_facts, token_facts
from quadrat.planning.fallback import FallBack, reason_text, require_known, require_names, rounded_up
from quadrat.planning.flat import flatten, padding_free_spec
from quadrat.planning.padded import Padded, PadOptions, require_tokenizer
from quadrat.planning.plan_cache import NO_LABELS, Labelling, Plan, PlanKey, Spec, check_device, planned
from quadrat.ragged import Ragged
from quadrat.support import columns as col
from quadrat.support.generators import Origin, numpy_origin, torch_origin
from quadrat.support.kinds import INT64, Framework
from quadrat.support.tensors import other_than_memory

MASK_TOKENS = {"pt": "torch_mask_tokens", "np": "numpy_mask_tokens"}


def model_language(collator: Any, features: Any, framework: Framework) -> Any:
    """The batch of `DataCollatorForLanguageModeling`. Raises FallBack where it cannot be proven."""
    facts = padding_facts(collator)
    if collator.padding_free:
        return _flattened(collator, features, framework, facts)
    require_tokenizer(collator.tokenizer)
    if collator.tokenizer.model_input_names[0] != "input_ids":
        raise FallBack("labels are made from 'input_ids'", "list 'input_ids' first in tokenizer.model_input_names")
    if not isinstance(features, (*SEQUENCES, Ragged)) or not features:
        raise FallBack("features are not a list", "give a list")
    multiple = collator.pad_to_multiple_of
    bare = names_of(features) is None
    names = () if bare else tuple(require_names(features))
    apart = _masks_apart(collator, framework, names)
    if apart and collator.rng == "philox":
        why = "masking is left to the collator's methods", "give special_tokens_mask, or override none"
        raise FallBack(*why)  # they must be told where the rows are
    omits = (
        "special_tokens_mask",
        *(("offset_mapping", "word_ids") if collator.whole_word_mask else ()),
        *((collator.row_key,) if collator.mlm and collator.row_key is not None else ()),
    )
    # A column of offsets without whole words stacks, or falls back, and is left out.
    has_offsets = not collator.whole_word_mask and "offset_mapping" in names
    labelling = NO_LABELS if apart else _labelling(collator, framework, names, omits)
    known = None if apart or has_offsets else facts
    # Labels of stored padding are made at once.
    deferred = collator.deferred and not (apart or has_offsets or labelling.make is _kept_labels)
    fields: dict[str, Any] = {"labelling": labelling, "facts": known, "deferred": deferred}
    if bare:
        batch = IdRows.of(collator, framework, multiple, **fields).make(collator, features)
    else:
        absent = () if apart or has_offsets or collator.whole_word_mask else ("offset_mapping",)
        options = PadOptions(pad_to_multiple_of=multiple)
        batch = Padded.of(collator, framework, options, absent=absent, **fields).make(collator, features)
    if apart:
        return _mask_apart(collator, batch, framework)
    if "offset_mapping" in batch:
        del batch["offset_mapping"]
    return batch


def _flattened(collator: Any, features: Any, framework: Framework, facts: tuple[Fact, ...] | None) -> Any:
    if collator.mlm and is_packed(features):
        features = documents_of(features)
    if isinstance(features, SEQUENCES) and features and names_of(features) is None:
        features = [{"input_ids": row} for row in features]
    names = tuple(names_of(features) or ())
    read = "special_tokens_mask", "word_ids", "offset_mapping"
    omits = tuple(name for name in read if name in names)
    if collator.mlm and collator.row_key is not None:
        philox.key_column(collator, names)
        omits = (*omits, collator.row_key)
    fields: dict[str, Any] = {"facts": facts, "deferred": collator.deferred}
    if not collator.mlm:
        # What is not a tokenizer is told later.
        ignored = getattr(collator.tokenizer, "pad_token_id", None) if collator.mask_padding == "token" else None
        fields |= {"labels": "shifted", "labelling": Labelling(omits=read), "ignored": ignored}
        return flatten(collator, features, padding_free_spec(collator, features, framework, **fields))
    fields |= {"labels": "none", "labelling": _masked_labelling(collator, framework, omits)}
    spec = padding_free_spec(collator, features, framework, **fields)
    try:
        if _masks_apart(collator, framework, names):
            raise FallBack("masking is left to the collator's methods", "give special_tokens_mask, or override none")
        return spec.make(collator, features)
    except FallBack as reason:
        if collator.whole_word_mask:
            raise ValueError(f"padding_free with whole_word_mask: {reason_text(*reason.args)}") from reason
    masker = collator
    if collator.rng == "philox":
        masker, features = philox.view_of(collator, features, flat=True)
    batch = flatten(collator, features, padding_free_spec(collator, features, framework, labels="none"))
    return {"input_ids": None, "labels": None, **_mask_apart(masker, batch, framework)}


def _labelling(collator: Any, framework: Framework, names: tuple[str, ...], omits: tuple[str, ...]) -> Labelling:
    if collator.mlm:
        return _masked_labelling(collator, framework, omits)
    # The attention masks of rows say which of their tokens are padding, and get no label.
    if collator.mask_padding == "length" and "attention_mask" in names:
        return Labelling(_kept_labels, "labels", omits)
    if collator.mask_padding == "length" or collator.tokenizer.pad_token_id is None:
        return Labelling(lambda *_: -100, "fill", omits)
    return Labelling(_causal_labels, "labels", omits)


def _masked_labelling(collator: Any, framework: Framework, omits: tuple[str, ...]) -> Labelling:
    facts = masking_facts(collator, framework, MASK_TOKENS[framework])
    return Labelling(functools.partial(masked_labels, framework), "labels", omits, facts)


def _masks_apart(collator: Any, framework: Framework, names: tuple[str, ...]) -> bool:
    """True if masking must be left to `torch_mask_tokens` or `numpy_mask_tokens`, after padding."""
    return collator.mlm and (
        collator._masks_itself(framework)
        or (collator.rng == "torch" and origin(collator, framework) is None)
        or not ("special_tokens_mask" in names or listed_special_ids(collator.tokenizer) is not None)
    )


def _mask_apart(collator: Any, batch: Any, framework: Framework) -> Any:
    special, offsets = batch.pop("special_tokens_mask", None), batch.pop("offset_mapping", None)
    batch["input_ids"], batch["labels"] = getattr(collator, MASK_TOKENS[framework])(
        batch["input_ids"], special_tokens_mask=special, offset_mapping=offsets
    )
    return batch


def origin(collator: Any, framework: Framework) -> Origin | None:
    """Where the reference's draws come from, if known."""
    return torch_origin(collator.generator) if framework == "pt" else numpy_origin(collator.generator)


def _kept_labels(collator: Any, names: tuple[str, ...]) -> Any:
    """The labels of causal language modelling from ids where the attention masks of rows are not 0."""
    return _core.KeptLabels(names.index("attention_mask"))


def _causal_labels(collator: Any, names: tuple[str, ...]) -> Any:
    """The labels of causal language modelling from ids: -100 for the padding token."""
    pad_token_id = collator.tokenizer.pad_token_id
    if type(pad_token_id) is not int:
        raise FallBack("the padding token's id is not an int", "add it with tokenizer.add_special_tokens")
    return _core.CausalLabels(pad_token_id, _special_column(names))


def _special_column(names: tuple[str, ...]) -> int:
    return names.index("special_tokens_mask") if "special_tokens_mask" in names else -1


def masked_labels(framework: Framework, collator: Any, names: tuple[str, ...]) -> _core.Labels:
    """The masking of the ids of a batch with these columns, and their labels."""
    special = _special_column(names)
    words, word_format = -1, _core.WORD_FORMATS.NONE
    if collator.whole_word_mask:
        formats = {"word_ids": _core.WORD_FORMATS.WORD_IDS, "offset_mapping": _core.WORD_FORMATS.OFFSETS}
        if (name := next((name for name in formats if name in names), None)) is None:
            raise FallBack("whole-word masking without offsets", "tokenize with return_offsets_mapping=True")
        words, word_format = names.index(name), formats[name]
    if collator.rng == "philox":
        keys = philox.key_column(collator, names)
        mask_id, vocab_size, special_ids = _tokens(collator, framework, special)
        probabilities = collator.mlm_probability, collator.mask_replace_prob, collator.random_replace_prob
        return _core.PhiloxLabels(
            PhiloxOptions(seed_of(collator.seed), 0, *probabilities, mask_id, vocab_size),
            special_ids,
            special=special,
            words=words,
            word_format=word_format,
            keys=keys,
            epoch=collator._shared_epoch().array,
        )
    return _masked_labels(collator, framework, special, words, word_format)


def _masked_labels(
    collator: Any, framework: Framework, special: int, words: int, word_format: int
) -> _core.MaskedLabels:
    where = origin(collator, framework)
    if where is None:
        raise FallBack("the generator's draws are not known", "give a seed, or a generator of the CPU")
    mask_id, vocab_size, special_ids = _tokens(collator, framework, special)
    replacement = where.replacement(collator.mask_replace_prob, collator.random_replace_prob, mask_id, vocab_size)
    probability = where.rounded(collator.mlm_probability)
    return _core.MaskedLabels(*where[:2], probability, replacement, special_ids, special, words, word_format)


def _tokens(collator: Any, framework: Framework, special: int) -> tuple[int, int, list[int]]:
    """(mask id, size of the vocabulary, ids that are special unless column `special` says). Raises FallBack."""
    tokenizer = collator.tokenizer
    mask, random = collator.mask_replace_prob, collator.random_replace_prob
    has_random = not (mask == 1 or random == 0)
    probabilities = [collator.mlm_probability, mask, random, random / (1 - mask) if has_random else 0.0]
    mask_id = tokenizer.convert_tokens_to_ids(tokenizer.mask_token) if framework == "pt" else tokenizer.mask_token_id
    if not all(type(p) in (int, float) and 0 <= p <= 1 for p in probabilities) or type(mask_id) is not int:
        raise FallBack("no mask token, or probabilities below 0 or above 1", "set tokenizer.mask_token")
    vocab_size = length_of(tokenizer)
    if not 0 < vocab_size < _core.MOST_TOKENS:
        raise FallBack("a vocabulary of that size is drawn from in another way")
    if special >= 0:
        return mask_id, vocab_size, []
    ids = listed_special_ids(tokenizer)
    if ids is None:
        raise FallBack(f"{type(tokenizer).__name__} has its own special tokens", "give a column special_tokens_mask")
    if not all(0 <= token < _core.MOST_TOKENS for token in ids):
        raise FallBack("special tokens far outside the vocabulary", "add them with tokenizer.add_special_tokens")
    return mask_id, vocab_size, ids


def masking_facts(collator: Any, framework: Framework, method: str) -> tuple[Fact, ...] | None:
    """The facts that masking depends on besides the collator's fields and the padding; None where not known."""
    tokenizer = collator.tokenizer
    cls, state = type(tokenizer), getattr(tokenizer, "__dict__", {})
    special = state.get("_special_tokens_map")
    if type(special) is not dict or any(hasattr(cls, name) for name in ("mask_token", "mask_token_id")):
        return None
    extra = [value for value in (state.get("_extra_special_tokens"), *special.values()) if isinstance(value, list)]
    tokens = token_facts(tokenizer, tokenizer.all_special_tokens)
    if tokens is None:
        return None
    attributes = tokenizer.SPECIAL_TOKENS_ATTRIBUTES
    facts: list[Fact] = [
        (fact.OWN_ABSENT, None, method, None),
        (fact.ATTRIBUTE, type(collator), method, getattr(type(collator), method)),
        *length_facts(tokenizer),
        *tokens,
        (fact.ATTRIBUTE, tokenizer, "SPECIAL_TOKENS_ATTRIBUTES", attributes),
        (fact.ITEMS, attributes, None, tuple(attributes)),
        *((fact.ENTRY, special, name, value) for name, value in special.items()),
        *((fact.ABSENT, special, name, None) for name in attributes if name not in special),
        *((fact.ITEMS, value, None, tuple(value)) for value in extra),
        (fact.ABSENT, state, "get_special_tokens_mask", None),
        (fact.ATTRIBUTE, cls, "get_special_tokens_mask", cls.get_special_tokens_mask),
    ]
    if "_extra_special_tokens" in state:
        facts.append((fact.ENTRY, state, "_extra_special_tokens", state["_extra_special_tokens"]))
    if getattr(collator, "rng", "torch") == "philox":
        facts.append((fact.OWN, None, "_quadrat_epoch", collator._shared_epoch()))
    elif framework == "pt":  # probabilities are of the default dtype
        facts.append((fact.CALL, torch.get_default_dtype, None, torch.get_default_dtype()))
    return tuple(facts)


def mask_array(collator: Any, inputs: Any, special: Any, offsets: Any, framework: Framework) -> tuple[Any, Any] | None:
    """Masks `inputs`, `[rows, width]` int64, in place; returns them and labels, None where the reference had better."""
    if collator.rng == "philox":
        return philox.mask_batch(collator, inputs, special, offsets)
    try:
        if not is_plain_ids(inputs, framework) or inputs.ndim != 2 or not inputs.shape[0]:
            return None
        row = imitated.TABLE["DataCollatorForLanguageModeling"]
        require_known(row, framework)
        if imitated.compares(row):
            return None
        check_device(framework)
        if collator.whole_word_mask and offsets is None:
            return None
        labeller = _masked_labels(collator, framework, -1 if special is None else 0, -1, _core.WORD_FORMATS.NONE)
        offsets = offsets if collator.whole_word_mask else None
        return inputs, write_labels(labeller, inputs, special, offsets, of_batch=True)
    except (FallBack, TypeError, ValueError):
        return None


def is_plain_ids(array: Any, framework: Framework) -> bool:
    """True if the kernels may write to it: contiguous int64 in host memory."""
    if framework == "np":
        return type(array) is np.ndarray and array.dtype == np.int64 and array.flags.carray
    known = type(array) is torch.Tensor and array.is_cpu and array.dtype == torch.int64 and array.is_contiguous()
    return known and other_than_memory(array) is None


@planned
def rows_plan(key: PlanKey) -> Plan:
    """The ids, and their labels."""
    shape, (left, pad_id, derives) = col.column_shapes(key.signature)[0], key.options
    forms, first_form, numbers, *_ = shape
    # From lists and, for torch, arrays the reference makes int64; other rows keep their dtype.
    pt = key.framework == "pt"
    converts, kept = (col.LIST | col.ARRAY | col.DERIVED, col.TENSOR) if pt else (col.LIST, col.ARRAY)
    if not (
        (not forms & ~converts and numbers and not numbers & ~(col.INTS | col.BOOLS))
        or (not forms & ~col.PYTHON_ROWS and numbers and not numbers & ~(col.PYTHON_INTS | col.BOOLS))
        or (forms == first_form == kept and numbers == col.PYTHON_INTS)
    ):
        if not numbers and not forms & ~col.ROWS:
            raise FallBack("all rows are empty", "leave them out")
        raise FallBack("rows are not lists of ints, or arrays or tensors of int64", "give rows of one such type")
    if shape.forms & col.MEMORY_ROWS and shape.empty:
        raise FallBack("an empty array or tensor, whose dtype may be another", "leave empty rows out")
    if key.framework == "pt" and shape.backward:
        raise FallBack("an array that torch does not take", "give numpy.ascontiguousarray(row)")
    if not shape.full and pad_id is None:
        raise FallBack("the tokenizer has no pad token", "set tokenizer.pad_token")
    if not shape.full and left and shape.empty:
        raise FallBack("an empty row on the left", "leave empty rows out")
    action = col.STACK if shape.full else col.PAD
    steps = [(MAIN, 0, action, INT64)]
    if derives:
        steps.append(("labels", 0, action if derives == "fill" else col.LABELS, INT64))
    return Plan(tuple(steps))


class IdRows(Spec):
    """`{"input_ids": [rows, width]}` int64, padded only where lengths or a multiple ask for it, and their `labels`."""

    plan = staticmethod(rows_plan)
    mismatch = "features are not a list of mappings or rows", "give a list of rows, or of dicts with input_ids"

    @classmethod
    def of(
        cls,
        collator: Any,
        framework: Framework,
        multiple: int | None = None,
        *,
        labelling: Labelling = NO_LABELS,
        deferred: bool = False,
        **fields: Any,
    ) -> Self:
        """Of a collator. fields: more of the `Spec`, `facts` among them. Raises FallBack."""
        tokenizer = collator.tokenizer
        require_tokenizer(tokenizer)
        rounded_up(0, multiple)
        left = tokenizer.padding_side != "right"
        pad_id = None if tokenizer.pad_token is None else tokenizer.pad_token_id
        return cls(
            framework=framework,
            options=(left, pad_id if type(pad_id) is int else None, labelling.derives),
            names=(MAIN,),
            main=MAIN,
            layout=col.BatchLayout(-1, multiple or 1, left),
            labelling=labelling,
            deferred=deferred and labelling.make is not None,
            **fields,
        )

    def values(self, collator: Any, key: PlanKey) -> dict[str, Any]:
        """The id of the padding token, which pads the ids."""
        return {MAIN: self.options[1]}

    def make(self, collator: Any, features: Any) -> Any:
        """The batch of bare rows, or of mappings with `input_ids`. Raises FallBack."""
        if not isinstance(features, (*SEQUENCES, Ragged)) or not len(features):
            raise FallBack("features are not a list of mappings or rows", "give a list")
        bare = names_of(features) is None
        if type(features) is Ragged:
            features, bare = rows_of_columns({MAIN: features}), False
        elif bare and type(features) not in SEQUENCES:  # a subclass may give its rows in its own way
            raise FallBack("rows are not in a plain list or tuple", "give list(rows)")
        spec = dataclasses.replace(self, bare=bare, optional={} if bare else self.optional)
        return super(IdRows, spec).make(collator, features)
