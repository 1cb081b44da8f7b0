"""One naive, readable NumPy function per kernel: the oracle of the tests.

A kernel has the same name here, in csrc/kernels and in tests/kernels. A CUDA kernel is named after the
function that it implements, or does what several of them do.
"""

from oracles.batches import (
    balance_batches,
    group_by_length,
    pack_rows,
    plan_batches,
    plan_shapes,
    rebalance_batches,
)
from oracles.draws import (
    choose_words,
    mask_tokens,
    permutation_mask,
    philox_mask,
    philox_order,
    row_keys,
)
from oracles.rows import (
    attention_mask,
    causal_labels,
    check_offsets,
    concat_padded,
    copy_rows,
    cu_seqlens,
    fill_gaps,
    mask_layout,
    position_ids,
    put_tokens,
    separate_rows,
    seq_idx,
    special_tokens,
    take_tokens,
    unpad,
    unpad_masked,
    word_starts,
)
from oracles.varlen import document_blocks, fill_ends

__all__ = [
    "attention_mask",
    "balance_batches",
    "causal_labels",
    "check_offsets",
    "choose_words",
    "concat_padded",
    "copy_rows",
    "cu_seqlens",
    "document_blocks",
    "fill_ends",
    "fill_gaps",
    "group_by_length",
    "mask_layout",
    "mask_tokens",
    "pack_rows",
    "permutation_mask",
    "philox_mask",
    "philox_order",
    "plan_batches",
    "plan_shapes",
    "position_ids",
    "put_tokens",
    "rebalance_batches",
    "row_keys",
    "separate_rows",
    "seq_idx",
    "special_tokens",
    "take_tokens",
    "unpad",
    "unpad_masked",
    "word_starts",
]
