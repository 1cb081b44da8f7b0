"""Differences between versions of transformers, and of tokenizers: found by running the installed code once.

No code here checks a version number.
"""

import contextlib
import functools
import timeit
from typing import Any

import numpy as np
from tokenizers import Tokenizer, models

from quadrat.installed import originals
from quadrat.support.kinds import Framework


def _makes_a_generator(seed: int, generator: Any) -> bool:
    probe: Any = object.__new__(originals.DataCollatorForLanguageModeling)
    asked: list[Any] = []
    vars(probe).update(seed=seed, generator=generator, create_rng=lambda *arguments: asked.append(arguments))
    with contextlib.suppress(Exception):  # without features, it fails afterwards
        probe.torch_call([])
    return bool(asked)


@functools.cache
def zero_is_a_seed() -> bool:
    """True if masked language modelling makes a generator for `seed=0`; before 5.19 it does not."""
    return _makes_a_generator(0, None)


@functools.cache
def makes_fitting_generators() -> bool:
    """True if masked language modelling replaces generators of another library, or another process; from 5.24 on."""
    return _makes_a_generator(1, object())


@functools.cache
def numpy_token_labels_are_like_torch() -> bool:
    """True if a NumPy batch with token labels is an encoding like torch's; before 5.16, a plain dict, all int64."""

    class Tokenizer:
        padding_side = "right"

        def pad(self, features: Any, **options: Any) -> Any:
            return {"input_ids": np.zeros((1, 1), np.int64), "other": np.zeros((1, 1), np.float64)}

    collator = originals.DataCollatorForTokenClassification(Tokenizer())
    try:
        batch = collator.numpy_call([{"input_ids": [0], "other": [0.0], "labels": [0]}])
    except Exception:  # it asks more of a tokenizer than this one has
        return False
    return bool(batch["other"].dtype == np.float64)


@functools.cache
def multiple_choice_takes_labels() -> bool:
    """True if the collator of multiple choice takes labels out of its features; from 5.23 on it does not."""

    example = {"input_ids": [[0]], "label": 0}
    with contextlib.suppress(Exception):  # without a tokenizer, it fails afterwards
        originals.DataCollatorForMultipleChoice(None).torch_call([example])
    return "label" not in example


@functools.cache
def pad_warns_of_fast_tokenizers() -> bool:
    """True if the first `pad` of a fast tokenizer says that `__call__` is faster, as 4.x does."""

    asked: list[Any] = []

    class ProbeFast:
        @property
        def deprecation_warnings(self) -> dict[str, bool]:
            asked.append(self)
            return {"Asking-to-pad-a-fast-tokenizer": True}  # so that nothing is logged

    with contextlib.suppress(Exception):  # without features, it fails afterwards
        originals.PAD(ProbeFast(), [])
    return bool(asked)


@functools.cache
def flattening_takes_arrays() -> bool:
    """True if rows to flatten may be arrays; 4.x adds them up where it should join them."""
    two = np.ones(2, np.int64)
    try:
        batch = originals.DataCollatorWithFlattening(return_tensors="np")([{"input_ids": two}, {"input_ids": two}])
    except Exception:
        return False
    return bool(batch["input_ids"].shape == (1, 4))


@functools.cache
def flattening_takes_a_start() -> bool:
    """True if `position_ids_start` is known; before 5.15 positions are counted from 0."""
    collator = originals.DataCollatorWithFlattening(return_tensors="np")
    collator.position_ids_start = 5
    return bool(collator([{"input_ids": [1]}])["position_ids"][0, 0] == 5)


@functools.cache
def flattening_drops_empty_rows() -> bool:
    """True if rows without tokens are left out, and an error if there are no others; from 5.24 on."""
    collator = originals.DataCollatorWithFlattening(return_tensors="np")
    return bool(collator([{"input_ids": [1]}, {"input_ids": []}])["labels"].shape == (1, 1))


@functools.cache
def numpy_ints_are_labels(framework: Framework) -> bool:
    """True if `default_data_collator` makes int64 of labels that are NumPy's integers; before 5.22, float32."""
    labels = originals.default_data_collator([{"label": np.int32(1)}], framework)["labels"]
    return "int" in str(labels.dtype)


@functools.cache
def counting_copies_the_vocabulary() -> bool:
    """True if `len` of a fast tokenizer copies its vocabulary, before tokenizers 0.23; only a stopwatch can tell."""
    backend = Tokenizer(models.WordLevel({str(token): token for token in range(2000)}, unk_token="0"))

    def fastest(added: bool) -> float:
        return min(timeit.repeat(lambda: backend.get_vocab_size(added), number=1, repeat=5))

    return fastest(True) > 20 * fastest(False)
