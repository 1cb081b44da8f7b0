"""Language modelling: batches of padded or joined ids, and the labels made from them."""

from __future__ import annotations

from typing import Any, Literal

from quadrat.deferred.batch import DeferredBatch
from quadrat.input.rows import SEQUENCES, first_mapping
from quadrat.planning import masking, philox
from quadrat.planning.bare_rows import columns_of_ids, stack_rows
from quadrat.planning.fallback import FallBack, first_feature
from quadrat.planning.flat import flatten, flatten_features
from quadrat.planning.flattening import padding_free_plan
from quadrat.planning.padded import pad_features, require_tokenizer
from quadrat.planning.plan_cache import Labelling, PadOptions, as_encoding
from quadrat.planning.vocabulary import listed_special_ids
from quadrat.ragged import Ragged
from quadrat.support.memory import Framework

MASK_TOKENS = {"pt": "torch_mask_tokens", "np": "numpy_mask_tokens"}


def model_language(collator: Any, features: Any, framework: Framework) -> Any:
    """The batch of `DataCollatorForLanguageModeling`. Raises FallBack where it cannot be proven."""
    if collator.padding_free:
        return _flattened(collator, features, framework)
    require_tokenizer(collator.tokenizer)
    if collator.tokenizer.model_input_names[0] != "input_ids":
        raise FallBack("labels are made from 'input_ids'")
    if not isinstance(features, (*SEQUENCES, Ragged)) or not features:
        raise FallBack("features are not a list")
    multiple = collator.pad_to_multiple_of
    bare = first_mapping(features) is None
    names = () if bare else tuple(first_feature(features))
    apart = _masks_apart(collator, framework, names)
    if apart and collator.rng == "philox":
        raise FallBack("masking is left to the collator's methods")  # which must be told where the rows are
    if bare:
        ids = columns_of_ids(features)
        if apart:
            return _mask_apart(collator, stack_rows(collator, ids, framework, multiple), framework)
        remembers = type(features) in (list, tuple)
        return stack_rows(collator, ids, framework, multiple, _labelling(collator, framework), remembers=remembers)
    options = PadOptions(pad_to_multiple_of=multiple)
    if apart:
        padded = pad_features(collator, features, framework, options, remembers=False)
        return _mask_apart(collator, as_encoding(padded), framework)
    omits = (
        "special_tokens_mask",
        *(("offset_mapping", "word_ids") if collator.whole_word_mask else ()),
        *((collator.row_key,) if collator.mlm and collator.row_key is not None else ()),
    )
    labelling = _labelling(collator, framework, omits)
    batch = pad_features(collator, features, framework, options, labelling=labelling)
    if "offset_mapping" in batch:
        batch = batch if isinstance(batch, dict) else batch.to("cpu")
        del batch["offset_mapping"]
    return as_encoding(batch)


def _flattened(collator: Any, features: Any, framework: Framework) -> Any:
    if isinstance(features, SEQUENCES) and features and first_mapping(features) is None:
        features = [{"input_ids": row} for row in features]
    names = tuple(first_mapping(features) or ())
    read = "special_tokens_mask", "word_ids", "offset_mapping"
    omits = tuple(name for name in read if name in names)
    if collator.mlm and collator.row_key is not None:
        philox.key_column(collator, names)
        omits = (*omits, collator.row_key)
    labels: Literal["none", "shifted"] = "none" if collator.mlm else "shifted"
    labelling = _labelling(collator, framework, omits)
    plan = padding_free_plan(collator, features, framework, labels=labels, labelling=labelling)
    if not collator.mlm:
        return _without_padding_tokens(collator, flatten(collator, features, plan._replace(labelling=None)))
    try:
        if _masks_apart(collator, framework, names):
            raise FallBack("masking is left to the collator's methods")
        return flatten_features(features, plan, deferred=collator.deferred)
    except FallBack as reason:
        if collator.whole_word_mask:
            raise ValueError(f"padding_free with whole_word_mask: {reason}") from reason
    masker = collator
    if collator.rng == "philox":
        masker, features = philox.view_of(collator, features, flat=True)
    batch = flatten(collator, features, padding_free_plan(collator, features, framework, labels="none"))
    if isinstance(batch, DeferredBatch):
        batch = batch.to("cpu")
    return {"input_ids": None, "labels": None, **_mask_apart(masker, batch, framework)}


def _without_padding_tokens(collator: Any, batch: Any) -> Any:
    pad_id = collator.tokenizer.pad_token_id
    if collator.mask_padding != "token" or pad_id is None:
        return batch
    if isinstance(batch, DeferredBatch):
        return batch.ignoring(pad_id)
    batch["labels"][batch["labels"] == pad_id] = -100
    return batch


def _labelling(collator: Any, framework: Framework, omits: tuple[str, ...] = ()) -> Labelling:
    if collator.mlm:
        return Labelling(
            lambda names: masking.masked_labels(collator, names, framework),
            omits,
            lambda: masking.facts(collator, framework, MASK_TOKENS[framework]),
        )
    by_length = collator.mask_padding == "length"
    return Labelling(
        lambda names: masking.causal_labels(collator.tokenizer.pad_token_id, names, by_length=by_length),
        omits,
        lambda: (),
    )


def _masks_apart(collator: Any, framework: Framework, names: tuple[str, ...]) -> bool:
    """Whether masking must be left to `torch_mask_tokens` or `numpy_mask_tokens`, after padding."""
    return collator.mlm and (
        collator._masks_itself(framework)
        or (collator.rng == "torch" and masking.origin(collator, framework) is None)
        or not ("special_tokens_mask" in names or listed_special_ids(collator.tokenizer) is not None)
    )


def _mask_apart(collator: Any, batch: Any, framework: Framework) -> Any:
    special, offsets = batch.pop("special_tokens_mask", None), batch.pop("offset_mapping", None)
    batch["input_ids"], batch["labels"] = getattr(collator, MASK_TOKENS[framework])(
        batch["input_ids"], special_tokens_mask=special, offset_mapping=offsets
    )
    return batch
