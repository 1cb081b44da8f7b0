"""`check_packing` measures on tiny models whether packed rows stay apart, and finds what they lack."""

from __future__ import annotations

import contextlib
import functools
import importlib
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from hypothesis import given
from hypothesis import strategies as st
from transformers.models.lfm2 import modeling_lfm2

import quadrat
from quadrat import check_packing
from support.tiny_models import tiny

Flattening = quadrat.DataCollatorWithFlattening
PLAIN = ["gemma", "gemma2", "gpt2", "gpt_neox", "llama", "mistral", "olmo2", "phi3", "qwen2", "qwen3"]
EAGER = ("deepseek_v4", "gemma2", "inkling_text", "inkling2_text", "mamba", "mamba2")  # what has no sdpa
# The options with which their layers keep rows apart, where the installed transformers has them.
RECURRENT = {
    "bamba": ("return_seq_idx",),
    "lfm2": ("return_seq_idx",),
    "qwen3_next": ("return_seq_idx", "return_flash_attn_kwargs"),
}
# Whether the installed transformers passes on what resets the states of layers: 5.x does, 4.57 mostly does not.
PASSES_ON = hasattr(getattr(modeling_lfm2, "causal_conv1d_fn", None), "__wrapped__")

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")


@functools.cache
def model_of(kind: str, attention: str | None = None, **options: Any) -> Any:
    if attention is None:
        attention = "eager" if kind in EAGER else "sdpa"
    return tiny(kind, attention, **options)


def row_by_row(kernel: Any, boundaries: str, tensors: int, dim: int) -> Callable[..., Any]:
    """A kernel that computes each row of a packed batch on its own, as the packages of kernels do."""
    reference = kernel.__wrapped__

    def separate(*args: Any, seq_idx: Any = None, cu_seqlens: Any = None, **kwargs: Any) -> Any:
        if {"seq_idx": seq_idx, "cu_seqlens": cu_seqlens}[boundaries] is None:
            return reference(*args, **kwargs)
        sizes = cu_seqlens.diff().tolist() if boundaries == "cu_seqlens" else torch.bincount(seq_idx[0]).tolist()
        split = dict(enumerate(args[:tensors])) | {name: kwargs[name] for name in ("g", "beta") if name in kwargs}
        split = {
            key: tensor.split(sizes, dim)
            for key, tensor in split.items()
            if tensor.shape[dim : dim + 1] == (sum(sizes),)
        }
        outputs = []
        for row in range(len(sizes)):
            ours = [split[place][row] if place in split else arg for place, arg in enumerate(args)]
            outputs.append(
                reference(*ours, **{**kwargs, **{k: v[row] for k, v in split.items() if isinstance(k, str)}})
            )
        if isinstance(outputs[0], tuple):
            return torch.cat([output for output, _ in outputs], dim), None
        return torch.cat(outputs, dim)

    return separate


@pytest.fixture
def kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels that keep rows apart stand in for those of causal-conv1d, mamba-ssm and flash-linear-attention."""
    for kind in RECURRENT:
        module = importlib.import_module(f"transformers.models.{kind}.modeling_{kind}")
        for name, *how in (
            ("causal_conv1d_fn", "seq_idx", 1, 2),
            ("mamba2_chunk_scan", "seq_idx", 5, 1),
            ("torch_chunk_gated_delta_rule", "cu_seqlens", 3, 1),
        ):
            if hasattr(module, name):
                monkeypatch.setattr(module, name, row_by_row(getattr(module, name), *how))


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("kind", PLAIN)
def test_a_plain_decoder_needs_positions_alone(kind: str, attention: str) -> None:
    if attention == "sdpa" and not type(model_of(kind))._supports_sdpa:
        pytest.skip("the installed transformers has no sdpa for this model")
    model = tiny(kind, attention)
    report = check_packing(model, Flattening())
    assert report.ok
    assert report.packed
    assert report.problems == ()
    assert max(report.differences) <= report.tolerance < 0.01
    without = check_packing(model, Flattening(return_position_ids=False))
    assert "with return_position_ids=True they do not" in without.problems[0]
    assert without.differences[0] <= without.tolerance < without.differences[1]


@pytest.mark.skipif(
    not PASSES_ON, reason="transformers 4.57 gets no seq_idx to most of these layers, and none on a CPU"
)
@pytest.mark.parametrize("kind", RECURRENT)
def test_finds_what_a_recurrent_layer_lacks(kind: str, kernels: None) -> None:
    """What it needs is found by running it; with that it passes."""
    report = check_packing(model_of(kind), Flattening())
    assert report.differences[1] > report.tolerance
    for option in RECURRENT[kind]:
        assert f"{option}=True" in report.problems[0]
    with pytest.raises(ValueError, match="rows read each other"):
        report.raise_if_missing()
    report = check_packing(model_of(kind), Flattening(**dict.fromkeys(RECURRENT[kind], True)))
    assert report.ok, str(report)
    report.raise_if_missing()


@pytest.mark.skipif(not PASSES_ON, reason="transformers 4.57 runs some of these models with kernels only")
@pytest.mark.parametrize("kind", ["jamba", "mamba", "mamba2", "opt", "deepseek_v4", "inkling_text", "lfm3"])
def test_knows_what_no_argument_helps(kind: str) -> None:
    if kind not in transformers.CONFIG_MAPPING:
        pytest.skip("the installed transformers does not have this model")
    report = check_packing(model_of(kind), Flattening())
    assert not report.ok
    assert "use padded batches" in report.problems[0]
    assert report.differences[0] <= report.tolerance < report.differences[1]


@pytest.mark.parametrize(
    ("model", "collator", "remedy"),
    [
        ({"use_cache": True}, {}, "with use_cache=False they do not"),
        ({}, {"kwargs_for": "mask"}, "no attention_mask"),
    ],
)
def test_a_cache_and_a_mask_hide_the_boundaries(model: Any, collator: Any, remedy: str) -> None:
    report = check_packing(tiny("llama", **model), Flattening(**collator))
    assert remedy in report.problems[0]
    assert report.differences[1] > report.tolerance
    assert check_packing(tiny("llama", **model), Flattening(), use_cache=False).ok


ENCODERS = {"BertModel": 0}  # where positions begin
ENCODERS |= dict.fromkeys(["RobertaModel", "XLMRobertaModel", "CamembertModel", "MPNetModel", "EsmModel"], 2)


@pytest.mark.parametrize("name", ENCODERS)
@pytest.mark.parametrize("start", [0, 2])
def test_positions_of_encoders_with_flash_attention(name: str, start: int) -> None:
    """Positions begin at 2 in some models. A CPU measures them, and says that it does not measure boundaries."""
    cls = getattr(transformers, name)
    sizes = {"vocab_size": 64, "hidden_size": 48, "num_hidden_layers": 1, "num_attention_heads": 4}
    torch.manual_seed(0)
    sizes |= {"intermediate_size": 64, "pad_token_id": 0 if name == "BertModel" else 1}
    sizes |= {"position_embedding_type": "absolute", "mask_token_id": 4} if name == "EsmModel" else {}
    model = cls(cls.config_class(**sizes))
    model.config._attn_implementation_internal = "flash_attention_2"
    collator = Flattening(return_flash_attn_kwargs=True, position_ids_start=start)
    report = check_packing(model, collator)
    assert model.config._attn_implementation == "flash_attention_2"
    assert "FlashAttention runs on a GPU alone" in str(report)
    assert report.ok == (start == ENCODERS[name]), str(report)
    if not report.ok:
        assert f"use position_ids_start={ENCODERS[name]}" in report.problems[0]


@given(lengths=st.lists(st.integers(1, 9), min_size=2, max_size=5), multiple=st.sampled_from([None, 8]))
def test_a_batch_of_any_rows(lengths: list[int], multiple: int | None) -> None:
    rows = [{"input_ids": [3 + (7 * place + 5 * row) % 60 for place in range(n)]} for row, n in enumerate(lengths)]
    batch = Flattening(return_flash_attn_kwargs=True, pad_to_multiple_of=multiple)(rows)
    report = check_packing(model_of("llama"), batch)
    assert report.ok, str(report)
    assert len(report.differences) == len(lengths)
    del batch["position_ids"]
    report = check_packing(model_of("llama"), batch)
    assert "return_position_ids=True" in report.problems[0]
    assert report.differences[0] <= report.tolerance < max(report.differences[1:])


def test_collators_of_trl() -> None:
    pytest.importorskip("trl", reason="TRL, whose collators are checked, is not installed")
    from quadrat.trl import sft

    for kind in (sft.DataCollatorForLanguageModeling, sft.Original):
        report = check_packing(model_of("llama"), kind(pad_token_id=0, padding_free=True))
        assert report.ok, str(report)
        assert len(report.differences) == 2
        assert not check_packing(model_of("llama"), kind(pad_token_id=0)).packed
        assert not check_packing(model_of("opt"), kind(pad_token_id=0, padding_free=True))


def test_padded_batches_need_no_check() -> None:
    report = check_packing(model_of("mamba2"), lambda rows: {"input_ids": torch.ones(2, 12, dtype=torch.long)})
    assert report
    assert not report.packed


@pytest.mark.parametrize("options", [{"deferred": True}, {"pad_to_multiple_of": 8}, {"return_tensors": "np"}])
def test_any_form_of_batch(options: dict[str, Any]) -> None:
    report = check_packing(model_of("llama"), Flattening(**options))
    assert report.ok, str(report)
    assert len(report.differences) == 2


def test_is_not_counted() -> None:
    collator = Flattening(return_flash_attn_kwargs=True)
    for _ in range(2):
        collator([{"input_ids": [3, 4]}, {"input_ids": [5]}])
    before = quadrat.stats()
    for flattening in (collator, Flattening(separator_id="x"), quadrat.DataCollatorWithFlattening()):
        with contextlib.suppress(ValueError):
            check_packing(model_of("llama"), flattening)
    assert quadrat.stats() == before
    collator([{"input_ids": [3, 4]}, {"input_ids": [5]}])
    assert quadrat.stats() == before._replace(compiled=before.compiled + 1, remembered=before.remembered + 1)


def test_changes_nothing() -> None:
    model = tiny("llama", attention_dropout=0.5).train()
    model.lm_head.eval()

    class Drawing(Flattening):
        generator = None

        def __call__(self, features: Any, *args: Any) -> Any:
            self.drawn = [torch.rand(1), np.random.rand(), random.random(), self.__dict__["own"].random()]
            return super().__call__(features, *args)

    collator = Drawing()
    collator.__dict__["own"] = np.random.default_rng(0)
    torch.manual_seed(1)
    np.random.seed(1)
    random.seed(1)
    check_packing(model, collator)
    assert not hasattr(collator, "drawn")
    assert torch.rand(1) == torch.rand(1, generator=torch.Generator().manual_seed(1))
    assert np.random.rand() == np.random.RandomState(1).rand()
    assert random.random() == random.Random(1).random()
    assert collator.__dict__["own"].random() == np.random.default_rng(0).random()
    assert model.training
    assert not model.lm_head.training
    assert all(parameter.grad is None for parameter in model.parameters())


def test_errors() -> None:
    with pytest.raises(TypeError, match="with a config; Linear has none"):
        check_packing(torch.nn.Linear(1, 1), Flattening())

    def needy(rows: Any) -> Any:
        return [row["labels"] for row in rows]

    with pytest.raises(ValueError, match="pass one of its batches"):
        check_packing(model_of("llama"), needy)
    batch = Flattening()([{"input_ids": [3, 4]}, {"input_ids": [5]}])
    assert check_packing(model_of("llama"), batch).ok
    report = check_packing(model_of("llama"), {**batch, "unknown_argument": 1, "inputs_embeds": 2})
    assert "LlamaForCausalLM raises ValueError" in report.problems[0]
    assert str(report).startswith("LlamaForCausalLM does not keep rows apart\n- ")
