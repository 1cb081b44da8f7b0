"""Where each public name is at home: its module loads when the name is first used."""

from __future__ import annotations

import importlib
from typing import Any

HOMES = {
    "ArrowDataset": "quadrat.data.arrow",
    "BatchRebalanceSampler": "quadrat.batching.samplers",
    "BatchedDataset": "quadrat.data.batched",
    "BatchedStream": "quadrat.data.streams",
    "DataCollatorForLanguageModeling": "quadrat.collators.language_modeling",
    "DataCollatorForMultipleChoice": "quadrat.collators.multiple_choice",
    "DataCollatorForPermutationLanguageModeling": "quadrat.collators.permutation",
    "DataCollatorForSeq2Seq": "quadrat.collators.seq2seq",
    "DataCollatorForTokenClassification": "quadrat.collators.token_classification",
    "DataCollatorWithFlattening": "quadrat.collators.flattening",
    "DataCollatorForWholeWordMask": "quadrat.collators.whole_word",
    "DataCollatorWithPadding": "quadrat.collators.padding",
    "DefaultDataCollator": "quadrat.collators.default",
    "DeferredBatch": "quadrat.deferred.batch",
    "DistributedLengthGroupedSampler": "quadrat.batching.samplers",
    "DistributedTensorGatherer": "quadrat.evaluation.gatherer",
    "EvalLoopContainer": "quadrat.evaluation.containers",
    "LengthGroupedSampler": "quadrat.batching.samplers",
    "PackedDataset": "quadrat.data.packed",
    "PackedStream": "quadrat.data.streams",
    "Ragged": "quadrat.ragged",
    "SetEpochCallback": "quadrat.integration.callback",
    "TokenBudgetBatchSampler": "quadrat.batching.token_budget",
    "attention_mask": "quadrat.ops.mask",
    "concat_padded": "quadrat.ops.concat",
    "convert_to_tensors": "quadrat.planning.conversion",
    "default_data_collator": "quadrat.collators.default",
    "flatten": "quadrat.ops.flatten",
    "from_transformers": "quadrat.integration.adopt",
    "lengths": "quadrat.batching.lengths",
    "mask_tokens": "quadrat.ops.mask_tokens",
    "pack": "quadrat.batching.packing",
    "pack_dataset": "quadrat.batching.pack_dataset",
    "pad": "quadrat.ops.pad",
    "patch_datasets": "quadrat.integration.patch_datasets",
    "patch_flash_attn": "quadrat.integration.patch_attention",
    "patch_tokenizers": "quadrat.integration.patch_tokenizers",
    "patch_transformers": "quadrat.integration.patch",
    "patch_trl": "quadrat.integration.patch_trl",
    "show_config": "quadrat.config",
    "tokenizer_pad": "quadrat.planning.tokenizer_pad",
    "unpad": "quadrat.ops.unpad",
    "without_padding": "quadrat.evaluation.containers",
}

# Modules that are loaded like names, and are no part of `from quadrat import *`: not everybody has what they need.
MODULES = frozenset({"bert_padding", "trl", "varlen"})


def load_from(package: str, homes: dict[str, str], name: str) -> Any:
    """A public name of a package, whose modules load when one of their names is first used. Raises AttributeError."""
    if name not in homes:
        raise AttributeError(f"module {package!r} has no attribute {name!r}")
    module = importlib.import_module(f"{package}.{homes[name]}")
    return module if homes[name] == name else getattr(module, name)


def load(name: str) -> Any:
    """The function or class of this name, or module. Raises KeyError for a name that is not public."""
    if name in MODULES:
        return importlib.import_module(f"quadrat.{name}")
    return getattr(importlib.import_module(HOMES[name]), name)
