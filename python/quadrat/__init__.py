"""Drop-in, bit-identical, compiled replacements for the transformers data collators.

Importing quadrat imports neither torch nor transformers: names load on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from quadrat._core import __version__
from quadrat._names import HOMES, MODULES, load

if TYPE_CHECKING:
    from quadrat import bert_padding as bert_padding
    from quadrat import trl as trl
    from quadrat import varlen as varlen
    from quadrat.batching.lengths import lengths
    from quadrat.batching.pack_dataset import pack_dataset
    from quadrat.batching.packing import pack
    from quadrat.batching.samplers import BatchRebalanceSampler, DistributedLengthGroupedSampler, LengthGroupedSampler
    from quadrat.batching.token_budget import TokenBudgetBatchSampler
    from quadrat.collators.default import DefaultDataCollator, default_data_collator
    from quadrat.collators.flattening import DataCollatorWithFlattening
    from quadrat.collators.language_modeling import DataCollatorForLanguageModeling
    from quadrat.collators.multiple_choice import DataCollatorForMultipleChoice
    from quadrat.collators.padding import DataCollatorWithPadding
    from quadrat.collators.permutation import DataCollatorForPermutationLanguageModeling
    from quadrat.collators.seq2seq import DataCollatorForSeq2Seq
    from quadrat.collators.token_classification import DataCollatorForTokenClassification
    from quadrat.collators.whole_word import DataCollatorForWholeWordMask
    from quadrat.config import show_config
    from quadrat.data.arrow import ArrowDataset
    from quadrat.data.batched import BatchedDataset
    from quadrat.data.packed import PackedDataset
    from quadrat.data.streams import BatchedStream, PackedStream
    from quadrat.deferred.batch import DeferredBatch
    from quadrat.evaluation.containers import EvalLoopContainer, without_padding
    from quadrat.evaluation.gatherer import DistributedTensorGatherer
    from quadrat.integration.adopt import from_transformers
    from quadrat.integration.callback import SetEpochCallback
    from quadrat.integration.patch import patch_transformers
    from quadrat.integration.patch_attention import patch_flash_attn
    from quadrat.integration.patch_datasets import patch_datasets
    from quadrat.integration.patch_tokenizers import patch_tokenizers
    from quadrat.integration.patch_trl import patch_trl
    from quadrat.ops.concat import concat_padded
    from quadrat.ops.flatten import flatten
    from quadrat.ops.mask import attention_mask
    from quadrat.ops.mask_tokens import mask_tokens
    from quadrat.ops.pad import pad
    from quadrat.ops.unpad import unpad
    from quadrat.planning.conversion import convert_to_tensors
    from quadrat.planning.tokenizer_pad import tokenizer_pad
    from quadrat.ragged import Ragged

__all__ = [
    "ArrowDataset",
    "BatchRebalanceSampler",
    "BatchedDataset",
    "BatchedStream",
    "DataCollatorForLanguageModeling",
    "DataCollatorForMultipleChoice",
    "DataCollatorForPermutationLanguageModeling",
    "DataCollatorForSeq2Seq",
    "DataCollatorForTokenClassification",
    "DataCollatorForWholeWordMask",
    "DataCollatorWithFlattening",
    "DataCollatorWithPadding",
    "DefaultDataCollator",
    "DeferredBatch",
    "DistributedLengthGroupedSampler",
    "DistributedTensorGatherer",
    "EvalLoopContainer",
    "LengthGroupedSampler",
    "PackedDataset",
    "PackedStream",
    "Ragged",
    "SetEpochCallback",
    "TokenBudgetBatchSampler",
    "__version__",
    "attention_mask",
    "concat_padded",
    "convert_to_tensors",
    "default_data_collator",
    "flatten",
    "from_transformers",
    "lengths",
    "mask_tokens",
    "pack",
    "pack_dataset",
    "pad",
    "patch_datasets",
    "patch_flash_attn",
    "patch_tokenizers",
    "patch_transformers",
    "patch_trl",
    "show_config",
    "tokenizer_pad",
    "unpad",
    "without_padding",
]


if not TYPE_CHECKING:  # so that type checkers find names that are misspelt

    def __getattr__(name: str) -> Any:
        if name not in HOMES and name not in MODULES:
            raise AttributeError(f"module 'quadrat' has no attribute {name!r}")
        from quadrat.support.extras import needs

        with needs(f"quadrat.{name}", "datasets" if name in ("ArrowDataset", "patch_datasets") else "transformers"):
            value = load(name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted(__all__)
