"""`pad` of transformers' feature extractors, in compiled code: a part of `patch_transformers`."""

from __future__ import annotations

import functools
from typing import Any

from transformers import SequenceFeatureExtractor

from quadrat.installed import originals
from quadrat.integration.switch import Swap, Switch
from quadrat.planning.feature_pad import FeaturePadOptions, feature_pad


@functools.wraps(originals.FEATURE_PAD)
def _pad(  # noqa: PLR0917 - as in transformers
    self: Any,
    processed_features: Any,
    padding: Any = True,
    max_length: Any = None,
    truncation: Any = False,
    pad_to_multiple_of: Any = None,
    return_attention_mask: Any = None,
    return_tensors: Any = None,
) -> Any:
    sizes = padding, max_length, truncation, pad_to_multiple_of
    return feature_pad(self, processed_features, FeaturePadOptions(*sizes, return_attention_mask, return_tensors))


_pad._quadrat_replaces = originals.FEATURE_PAD  # type: ignore[attr-defined]
FEATURE_EXTRACTORS = Switch(lambda: [Swap(originals.FEATURE_PAD, _pad)], others=lambda: [SequenceFeatureExtractor])
