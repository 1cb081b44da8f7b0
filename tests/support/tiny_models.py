"""Tiny models of transformers, with weights large enough that a token that reads another row shows in its logits."""

from __future__ import annotations

from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

_COMMON = {
    **dict.fromkeys(("hidden_size", "n_embd", "word_embed_proj_dim"), 32),
    **dict.fromkeys(("intermediate_size", "n_inner", "ffn_dim", "moe_intermediate_size"), 48),
    **dict.fromkeys(("num_hidden_layers", "n_layer"), 2),
    **dict.fromkeys(("num_attention_heads", "n_head", "num_heads", "mamba_n_heads"), 4),
    **dict.fromkeys(("num_key_value_heads", "n_groups", "linear_num_key_heads"), 2),
    **dict.fromkeys(("head_dim", "linear_key_head_dim", "linear_value_head_dim", "mamba_d_state", "state_size"), 8),
    **dict.fromkeys(("max_position_embeddings", "n_positions"), 64),
    **dict.fromkeys(("num_experts", "num_local_experts", "n_routed_experts", "linear_num_value_heads"), 4),
    **{
        "vocab_size": 64,
        "mamba_d_head": 16,
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "use_cache": False,
        "num_experts_per_tok": 2,
    },
}
_OWN: dict[str, dict[str, Any]] = {
    "bamba": {"attn_layer_indices": [1]},
    "deepseek_v4": {
        **dict.fromkeys(("kv_lora_rank", "qk_rope_head_dim", "head_dim", "index_head_dim", "o_lora_rank"), 8),
        **{"num_hidden_layers": 4, "q_lora_rank": 16, "index_n_heads": 2},
        "compress_rates": {"compressed_sparse_attention": 2, "heavily_compressed_attention": 4},
    },
    "minimax_m3_vl_text": {
        **{"index_block_size": 4, "index_topk_blocks": 2, "index_n_heads": 2, "index_head_dim": 8},
        **{"layer_types": ["minimax_m3_sparse"] * 2},
    },
    "lfm3": {"layer_types": ["conv", "full_attention"]},
    "lfm2": {"layer_types": ["conv", "full_attention"], "full_attn_idxs": [1]},
    "mamba2": {"head_dim": 16, "num_heads": 4},
    "mistral": {"sliding_window": 5},
    "qwen3_next": {
        "layer_types": ["linear_attention", "full_attention"],
        "moe_intermediate_size": 16,
    },
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1, "num_experts": 2},
    "gemma2": {"sliding_window": 5},
}


def tiny(kind: str, attention: str | None = "sdpa", **options: Any) -> Any:
    config = AutoConfig.for_model(kind)
    names = {name: value for name, value in _COMMON.items() if hasattr(config, name)}
    config = AutoConfig.for_model(kind, **{**names, **_OWN.get(kind, {}), **options})
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config, attn_implementation=attention)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.normal_(0, 0.15)
    return model
