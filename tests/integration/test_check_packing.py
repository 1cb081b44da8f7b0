"""`check_packing` says what a model lacks to keep packed rows apart, and the logits of tiny models agree."""

from __future__ import annotations

import contextlib
import functools
import importlib
import itertools
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
from quadrat.varlen import check_packing
from support.tiny_models import tiny

Flattening = quadrat.DataCollatorWithFlattening
PLAIN = ["gemma", "gemma2", "gpt2", "gpt_neox", "llama", "mistral", "olmo2", "phi3", "qwen2", "qwen3"]
EAGER = ("deepseek_v4", "gemma2", "inkling_text", "inkling2_text", "mamba", "mamba2")  # what has no sdpa
# The layer of each, and the arguments that reset its states, where the installed transformers has them.
RECURRENT = {
    "bamba": ("BambaMixer", ("seq_idx",)),
    "lfm2": ("Lfm2ShortConv", ("seq_idx",)),
    "qwen3_next": ("Qwen3NextGatedDeltaNet", ("seq_idx", "cu_seq_lens_q")),
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
        split = {key: one.split(sizes, dim) for key, one in split.items() if one.shape[dim : dim + 1] == (sum(sizes),)}
        made = []
        for row in range(len(sizes)):
            ours = [split[place][row] if place in split else one for place, one in enumerate(args)]
            made.append(reference(*ours, **{**kwargs, **{k: v[row] for k, v in split.items() if isinstance(k, str)}}))
        if isinstance(made[0], tuple):
            return torch.cat([one for one, _ in made], dim), None
        return torch.cat(made, dim)

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
    report = check_packing(model, Flattening(), run=True)
    assert report.ok
    assert report.packed
    assert report.findings == ()
    assert max(report.differences) <= report.tolerance < 0.01
    without = check_packing(model, Flattening(return_position_ids=False), run=True)
    assert without.findings[0].missing == ("position_ids",)
    assert without.differences[0] <= without.tolerance < without.differences[1]


@pytest.mark.parametrize("kind", RECURRENT)
def test_finds_what_a_recurrent_layer_lacks(kind: str) -> None:
    layer, missing = RECURRENT[kind]
    report = check_packing(model_of(kind), Flattening(), run=True)
    found = next(one for one in report.findings if one.part == layer)
    assert not report
    assert report.differences[1] > report.tolerance
    if PASSES_ON or kind == "bamba":
        assert found.missing == missing
        assert "return_seq_idx=True" in found.message
        with pytest.raises(ValueError, match=rf"{layer} .* needs {missing[0]}"):
            report.raise_if_missing()
    else:
        assert found.missing == ()
        assert "use padded batches" in found.message


@pytest.mark.skipif(
    not PASSES_ON, reason="transformers 4.57 gets no seq_idx to most of these layers, and none on a CPU"
)
@pytest.mark.parametrize("kind", RECURRENT)
def test_passes_with_what_it_lacked(kind: str, kernels: None) -> None:
    collator = Flattening(return_seq_idx=True, return_flash_attn_kwargs="cu_seq_lens_q" in RECURRENT[kind][1])
    report = check_packing(model_of(kind), collator, run=True)
    assert report.ok, str(report)
    assert max(report.differences) <= report.tolerance
    report.raise_if_missing()
    warnings = [one for one in report.findings if "causal_conv1d" in one.message]
    assert [one.severity for one in warnings] == ["warning"]  # the packages themselves are not installed
    report = check_packing(model_of(kind), Flattening(), run=True)
    assert report.differences[1] > report.tolerance


@pytest.mark.skipif(not PASSES_ON, reason="transformers 4.57 runs some of these models with kernels only")
@pytest.mark.parametrize("kind", ["jamba", "mamba", "mamba2", "opt"])
def test_knows_what_no_argument_helps(kind: str) -> None:
    collator = Flattening(return_seq_idx=True)
    report = check_packing(model_of(kind), collator)
    assert not report.ok
    assert "use padded batches" in report.findings[0].message
    without = check_packing(model_of(kind), Flattening(), run=True)
    assert without.differences[0] <= without.tolerance < without.differences[1]


def convolution_of(kind: str) -> Any:
    """The function of a model's module that a package of kernels replaces where it has `__wrapped__`."""
    module = importlib.import_module(transformers.CONFIG_MAPPING[kind].__module__.replace("configuration", "modeling"))
    return module.causal_conv1d_fn


@pytest.mark.skipif(not PASSES_ON, reason="transformers 4.57 has none of these models")
@pytest.mark.parametrize("kind", ["deepseek_v4", "inkling_text", "inkling2_text", "lfm3", "minimax_m3_vl_text"])
def test_knows_what_ignores_arguments(kind: str) -> None:
    """Kernels that do not read what they are given, layers that do not get it, and blocks from the batch's start."""
    if kind not in transformers.CONFIG_MAPPING:
        pytest.skip("the installed transformers does not have this model")
    collator = Flattening(return_seq_idx=True, return_flash_attn_kwargs=True)
    report = check_packing(model_of(kind), collator)
    if kind in {"inkling2_text", "lfm3"} and hasattr(convolution_of(kind), "__wrapped__"):  # from 5.24 on
        assert report.ok
        assert "raises ValueError" in str(check_packing(model_of(kind), collator, run=True))
        return
    assert not report.ok
    assert all("cannot reset its" in found.message for found in report.findings)
    ran = check_packing(model_of(kind), Flattening(), run=True)
    assert ran.differences[0] <= ran.tolerance < ran.differences[1]


@pytest.mark.slow
@pytest.mark.skipif(not PASSES_ON, reason="the kernels that stand in replace functions of transformers 5")
@pytest.mark.parametrize("kind", [*RECURRENT, "llama", "opt", "mamba"])
def test_says_what_the_logits_show(kind: str, kernels: None) -> None:
    names = ("return_position_ids", "return_seq_idx", "return_flash_attn_kwargs")
    for values in itertools.product([False, True], repeat=3):
        collator = Flattening(**dict(zip(names, values, strict=True)))
        if kind == "mamba" and collator.return_seq_idx:
            continue  # transformers raises an error
        report = check_packing(model_of(kind), collator, run=True)
        apart = max(report.differences) <= report.tolerance
        assert check_packing(model_of(kind), collator).ok == apart, (values, str(report))


def test_a_cache_hides_the_boundaries() -> None:
    model = tiny("llama", use_cache=True)
    report = check_packing(model, Flattening(), run=True)
    assert report.findings[0].missing == ("use_cache",)
    assert report.differences[1] > report.tolerance
    assert check_packing(model, Flattening(), run=True, use_cache=False).ok


@pytest.mark.parametrize("attention", ["flash_attention_2", "kernels-community/flash-attn3"])
def test_flash_attention_takes_positions_or_boundaries(attention: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny("llama", use_cache=True)
    monkeypatch.setattr(model.config, "_attn_implementation", attention)
    assert check_packing(model, Flattening()).ok
    assert check_packing(model, Flattening(return_position_ids=False, return_flash_attn_kwargs=True)).ok
    [found] = check_packing(model, Flattening(return_position_ids=False, return_seq_idx=True)).findings
    assert found.missing == ("cu_seq_lens_q", "cu_seq_lens_k", "max_length_q", "max_length_k")
    assert "return_flash_attn_kwargs=True" in found.message
    batch = Flattening(return_flash_attn_kwargs=True)([{"input_ids": [3, 4]}, {"input_ids": [5]}])
    [found] = check_packing(model, {**batch, "max_length_q": torch.tensor(2)}).findings
    assert "as ints" in found.message
    padded = Flattening(return_flash_attn_kwargs=True, pad_to_multiple_of=8)
    [found] = check_packing(model, padded).findings
    assert "leaves the gradients of padding after the last row unset" in found.message
    assert check_packing(model, quadrat.batching.FixedShapes(padded, quadrat.batching.ShapePlan([(4, 64)], False)))


@pytest.mark.parametrize("kind", [*PLAIN, "opt"])
def test_flash_attention_of_decoders_reads_positions(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = model_of(kind)
    monkeypatch.setattr(model.config, "_attn_implementation", "flash_attention_2")
    reads = kind != "gpt2" or PASSES_ON  # GPT-2 of 4.57 does not give its layers the positions
    assert check_packing(model, Flattening()).ok == reads
    assert check_packing(model, Flattening(return_flash_attn_kwargs=True)).ok


def test_flash_attention_of_encoders_reads_boundaries_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    model = transformers.BertModel(transformers.BertConfig(vocab_size=64, hidden_size=48, num_hidden_layers=1))
    assert "makes no mask" in check_packing(model, Flattening()).findings[0].message
    monkeypatch.setattr(model.config, "_attn_implementation", "flash_attention_2")
    [found] = check_packing(model, Flattening()).findings
    assert found.missing == ("cu_seq_lens_q", "cu_seq_lens_k", "max_length_q", "max_length_k")
    assert check_packing(model, Flattening(return_flash_attn_kwargs=True)).ok


def test_attention_mask_hides_the_boundaries() -> None:
    report = check_packing(model_of("llama"), Flattening(kwargs_for="mask"), run=True)
    assert "leave it out" in report.findings[0].message
    assert report.differences[1] > report.tolerance


def test_batches_of_a_fixed_shape() -> None:
    """Bounds that repeat the end are no rows, and padding is one."""
    plan = quadrat.batching.ShapePlan([(4, 64)], padded=False)
    collator = quadrat.batching.FixedShapes(Flattening(return_flash_attn_kwargs=True), plan)
    report = check_packing(model_of("llama"), collator, run=True)
    assert report.ok
    assert len(report.differences) == 3


def test_multimodal_positions() -> None:
    from transformers.models.qwen2_vl.modeling_qwen2_vl import Qwen2VLTextConfig, Qwen2VLTextModel

    rope = {"rope_type": "default", "mrope_section": [1, 1, 2], "rope_theta": 10000.0}
    small = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1, "use_cache": False}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "bos_token_id": 1, "eos_token_id": 2}
    scaling = {"rope_parameters" if hasattr(Qwen2VLTextConfig(), "rope_parameters") else "rope_scaling": rope}
    torch.manual_seed(0)
    model = Qwen2VLTextModel(Qwen2VLTextConfig(**small, **heads, **scaling))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0, 0.15)
    report = check_packing(model, Flattening(), run=True)
    assert "[4, 1, total]" in report.findings[0].message
    assert report.differences[1] > report.tolerance
    batch = Flattening()([{"input_ids": [3, 4, 5]}, {"input_ids": [6, 7]}])
    batch["position_ids"] = batch["position_ids"].expand(4, 1, -1)
    report = check_packing(model, batch, run=True)
    assert report.ok, str(report)


@given(lengths=st.lists(st.integers(1, 9), min_size=2, max_size=5), multiple=st.sampled_from([None, 8]))
def test_a_batch_of_any_rows(lengths: list[int], multiple: int | None) -> None:
    rows = [{"input_ids": [3 + (7 * place + 5 * row) % 60 for place in range(n)]} for row, n in enumerate(lengths)]
    batch = Flattening(return_flash_attn_kwargs=True, pad_to_multiple_of=multiple)(rows)
    report = check_packing(model_of("llama"), batch, run=True)
    assert report.ok, str(report)
    assert len(report.differences) == len(lengths)
    del batch["position_ids"]
    report = check_packing(model_of("llama"), batch, run=True)
    assert [found.missing for found in report.findings] == [("position_ids",), ()]
    assert report.differences[0] <= report.tolerance < max(report.differences[1:])


def test_collators_of_trl() -> None:
    pytest.importorskip("trl", reason="TRL, whose collators are checked, is not installed")
    from quadrat.trl import sft

    for kind in (sft.DataCollatorForLanguageModeling, sft.Original):
        report = check_packing(model_of("llama"), kind(pad_token_id=0, padding_free=True), run=True)
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
    report = check_packing(model_of("llama"), Flattening(**options), run=True)
    assert report.ok, str(report)
    assert len(report.differences) == 2


@pytest.mark.parametrize("run", [False, True])
def test_is_not_counted(run: bool) -> None:
    collator = Flattening(return_flash_attn_kwargs=True)
    for _ in range(2):
        collator([{"input_ids": [3, 4]}, {"input_ids": [5]}])
    before = quadrat.stats()
    fixed = quadrat.batching.FixedShapes(collator, quadrat.batching.ShapePlan([(4, 64)], padded=False))
    for one in (collator, fixed, Flattening(separator_id="x"), quadrat.DataCollatorWithFlattening()):
        with contextlib.suppress(ValueError):
            check_packing(model_of("llama"), one, run=run)
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
    check_packing(model, collator, run=True)
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
    report = check_packing(model_of("llama"), {**batch, "unknown_argument": 1, "inputs_embeds": 2}, run=True)
    assert "LlamaForCausalLM raises ValueError" in report.findings[0].message
    assert str(report).startswith("LlamaForCausalLM does not keep the rows of these batches apart\n- error: ")
