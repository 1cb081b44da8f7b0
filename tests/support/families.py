"""Tiny models of many families, by name: what `remove_padding` is tried on."""

from typing import Any

import torch
import transformers
from transformers.models.bert import modeling_bert

VOCABULARY = 99
# Encoders ask transformers for their attention, which 4.57 computes in the file of a model.
ENCODERS_TAKE_ROWS = hasattr(modeling_bert, "eager_attention_forward")
DECODER = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
ENCODER = {
    name: size for name, size in DECODER.items() if name not in ("num_key_value_heads", "bos_token_id", "eos_token_id")
}
_ROBERTA = ENCODER | {"pad_token_id": 1, "max_position_embeddings": 66}
_MOE = {"num_experts_per_tok": 2, "moe_intermediate_size": 24, "output_router_logits": False}
_WINDOW = {"sliding_window": 4, "use_sliding_window": True, "layer_types": ["sliding_attention", "full_attention"]}

# The name of a family, that of its language model, and its configuration.
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "Bert": ("BertForMaskedLM", ENCODER),
    "Roberta": ("RobertaForMaskedLM", _ROBERTA),
    "XLMRoberta": ("XLMRobertaForMaskedLM", _ROBERTA),
    "Electra": ("ElectraForMaskedLM", ENCODER | {"embedding_size": 32}),
    "DistilBert": ("DistilBertForMaskedLM", ENCODER | {"hidden_dim": 48}),
    "Albert": ("AlbertForMaskedLM", ENCODER | {"embedding_size": 32}),
    "ModernBert": (
        "ModernBertForMaskedLM",
        ENCODER
        | {"local_attention": 6, "global_attn_every_n_layers": 2}
        | {"bos_token_id": 1, "eos_token_id": 2, "cls_token_id": 1, "sep_token_id": 2},
    ),
    "GPT2": ("GPT2LMHeadModel", DECODER),
    "Llama": ("LlamaForCausalLM", DECODER),
    "Qwen2": ("Qwen2ForCausalLM", DECODER),
    "Qwen3": ("Qwen3ForCausalLM", DECODER | {"head_dim": 8}),
    "Mistral": ("MistralForCausalLM", DECODER | {"sliding_window": 4}),
    "Gemma3": ("Gemma3ForCausalLM", DECODER | _WINDOW | {"head_dim": 8}),
    "Phi": ("PhiForCausalLM", DECODER),
    "Phi3": ("Phi3ForCausalLM", DECODER),
    "GPTNeoX": ("GPTNeoXForCausalLM", DECODER),
    "OPT": (
        "OPTForCausalLM",
        DECODER | {"ffn_dim": 48, "word_embed_proj_dim": 32, "pad_token_id": 1, "bos_token_id": 2},
    ),
    "Falcon": ("FalconForCausalLM", DECODER | {"new_decoder_architecture": True, "num_kv_heads": 2}),
    "Olmo2": ("Olmo2ForCausalLM", DECODER),
    "Granite": ("GraniteForCausalLM", DECODER),
    "SmolLM3": ("SmolLM3ForCausalLM", DECODER),
    "Cohere": ("CohereForCausalLM", DECODER),
    "Starcoder2": ("Starcoder2ForCausalLM", DECODER),
    "Mixtral": ("MixtralForCausalLM", DECODER | {"num_local_experts": 4, "num_experts_per_tok": 2}),
    "Qwen3Moe": ("Qwen3MoeForCausalLM", DECODER | _MOE | {"num_experts": 4, "head_dim": 8}),
    "Gemma2": ("Gemma2ForCausalLM", DECODER | _WINDOW | {"head_dim": 8}),
    "GptOss": (
        "GptOssForCausalLM",
        DECODER | _WINDOW | {"num_local_experts": 4, "num_experts_per_tok": 2, "head_dim": 8},
    ),
    "MPNet": ("MPNetForMaskedLM", _ROBERTA),
    "DebertaV2": (
        "DebertaV2ForMaskedLM",
        ENCODER | {"relative_attention": True, "pos_att_type": ["p2c", "c2p"], "position_biased_input": False},
    ),
    "Bloom": ("BloomForCausalLM", DECODER),
    "Mamba2": ("Mamba2ForCausalLM", DECODER | {"num_heads": 4, "head_dim": 16, "state_size": 8, "n_groups": 1}),
}


def tiny(family: str, **options: Any) -> Any:
    """A language model of a family in float64 and evaluation mode, without dropout, each time with the same weights."""
    name, settings = FAMILIES[family]
    return tiny_of(name, settings, **options)


def tiny_of(name: Any, settings: dict[str, Any], **options: Any) -> Any:
    """A tiny model of a class of transformers, or of a subclass of one, as `tiny`."""
    cls: Any = getattr(transformers, name) if isinstance(name, str) else name
    config = cls.config_class(**settings | options)
    for key, value in vars(config).items():
        if "drop" in key and isinstance(value, float):
            setattr(config, key, 0.0)
    config._experts_implementation = "eager"  # others have no float64
    torch.manual_seed(0)
    return cls(config).double().eval()


def padded_batch(rows: int, width: int, *, left: bool = False, padding: int = 0, seed: int = 0) -> dict[str, Any]:
    """Ids and mask of rows of drawn lengths, the first of them as long as the batch is wide."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, width + 1, (rows,), generator=generator)
    lengths[0] = width
    mask = torch.arange(width) < lengths[:, None]
    mask = mask.flip(1) if left else mask
    ids = torch.randint(5, VOCABULARY, (rows, width), generator=generator)
    return {"input_ids": ids.masked_fill(~mask, padding), "attention_mask": mask.long()}


def with_labels(batch: dict[str, Any]) -> dict[str, Any]:
    """The batch with a label at each token, but for first tokens of rows: a causal loss reads padding before them."""
    mask = batch["attention_mask"].bool()
    before = torch.nn.functional.pad(mask[:, :-1], (1, 0))
    return batch | {"labels": batch["input_ids"].where(mask & before, -100)}
