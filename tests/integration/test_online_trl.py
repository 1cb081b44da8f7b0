"""`quadrat.trl.trim` and `batch_by_tokens` on TRL's online trainers: the weights of TRL, from fewer tokens."""

import itertools
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import quadrat
from quadrat.installed import imitated

trl = pytest.importorskip("trl", reason="TRL, whose trainers are trimmed, is not installed")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # what TRL's dependencies say when they are imported
    from transformers import OPTConfig, OPTForCausalLM
    from trl.experimental.online_dpo import OnlineDPOConfig, OnlineDPOTrainer
    from trl.trainer import grpo_trainer
    from trl.trainer.utils import add_fused_lm_head

    from quadrat.trl import online
    from quadrat.trl.positions import sides_of
    from quadrat.trl.row_sizes import split_by_tokens
    from support.isolated import in_two
    from support.online import QUIET, difference, policy, reward, tokenizer, trainer_of, weights

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning", "ignore:.*experimental")
BOTH = "Passes of Qwen2ForCausalLM are cut at both sides"
BY_TOKENS, BY_ROWS = "rows of similar length, as many as a token budget allows", "similar length, as many as before"

# What is trained, and what is said of it.
RUNS: dict[str, tuple[str, dict[str, Any], str]] = {
    "GRPO": ("GRPO", {}, BY_TOKENS),
    "GRPO, a reference": ("GRPO", {"beta": 0.1}, BY_TOKENS),
    "GRPO, a mean over rows": ("GRPO", {"loss_type": "grpo"}, BY_ROWS),
    "GRPO, two iterations": ("GRPO", {"num_iterations": 2, "beta": 0.1}, BY_TOKENS),
    "GRPO, two steps of a generation": ("GRPO", {"steps_per_generation": 8, "num_generations": 4}, BY_TOKENS),
    "GRPO, two generations of a step": ("GRPO", {"steps_per_generation": 2}, BY_TOKENS),
    "GRPO, truncated completions masked": ("GRPO", {"mask_truncated_completions": True}, BY_TOKENS),
    "GRPO, tools": ("GRPO", {"tools": True}, BY_TOKENS),
    "GRPO, sequences": ("GRPO", {"importance_sampling_level": "sequence", "loss_type": "luspo"}, BY_ROWS),
    "GRPO, multiples": ("GRPO", {"pad_to_multiple_of": 8, "loss_type": "vespo"}, BY_TOKENS),
    "GRPO, positions": ("GRPO", {"kind": "GPT-2", "beta": 0.1}, "are cut at the right only"),
    "GRPO, averaged": ("GRPO", {"loss_type": "bnpo"}, "the loss 'bnpo' is averaged within a micro-batch"),
    "GRPO, entropies": ("GRPO", {"top_entropy_quantile": 0.5}, "top_entropy_quantile"),
    "GRPO, parts": ("GRPO", {"steps_per_generation": 6}, "an optimizer step has parts of generation batches"),
    "RLOO": ("RLOO", {}, BY_ROWS),
    "RLOO, a reference": ("RLOO", {"beta": 0.1, "num_iterations": 2}, BY_ROWS),
}


def trained(name: str, folder: Path, change: Any = None, **options: Any) -> Any:
    """A trainer after its steps, and what `change` returned for it."""
    trainer = trainer_of(name, folder, **options)
    made = None if change is None else change(trainer)
    trainer.train()
    return trainer, made


@pytest.mark.parametrize("run", RUNS)
def test_same_weights(run: str, tmp_path: Path) -> None:
    name, options, says = RUNS[run]
    expected, _ = trained(name, tmp_path, **options)
    got, made = trained(name, tmp_path, quadrat.batch_by_tokens, **options)
    moved = difference(weights(expected), weights(trainer_of(name, tmp_path, **options)))
    assert moved > 1e-4
    assert difference(weights(expected), weights(got)) < min(1e-5, moved / 100)
    assert says in str(made)
    assert made.passes.computed < (0.95 if "multiples" in run else 0.85) * made.passes.computed_before
    for one, two in zip(expected.state.log_history, got.state.log_history, strict=True):
        for key in one.keys() & {"loss", "grad_norm", "reward", "completions/mean_length"}:
            assert two[key] == pytest.approx(one[key], rel=1e-4, abs=1e-6)


def test_trim_keeps_metrics(tmp_path: Path) -> None:
    """Micro-batches have the same rows, and what is logged of them stays."""
    expected, _ = trained("GRPO", tmp_path, beta=0.1)
    got, passes = trained("GRPO", tmp_path, quadrat.trl.trim, beta=0.1)
    assert difference(weights(expected), weights(got)) < 1e-6
    assert BOTH in str(passes)
    for one, two in zip(expected.state.log_history[:-1], got.state.log_history[:-1], strict=True):
        assert one.keys() == two.keys()
        assert {key: value for key, value in two.items() if key != "step_time"} == pytest.approx(
            {key: value for key, value in one.items() if key != "step_time"}, rel=1e-3, abs=1e-6, nan_ok=True
        )


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_passes(data: Any, passes_of: Any) -> None:
    """Results of a pass are TRL's, 0 where they are masked, in chunks and in one, with gradients and without."""
    trainer, passes = passes_of
    rows = data.draw(st.integers(1, 7))
    prompts, completions = (data.draw(st.lists(st.integers(low, 9), min_size=rows, max_size=rows)) for low in (0, 0))
    widths = (max(*prompts, 1) + data.draw(st.integers(0, 3)), max(*completions, 1) + data.draw(st.integers(0, 3)))
    mask = torch.zeros(rows, sum(widths), dtype=torch.int64)
    for row, (before, after) in enumerate(zip(prompts, completions, strict=True)):
        mask[row, widths[0] - before : widths[0] + after] = 1
    ids = torch.randint(3, 60, mask.shape, generator=torch.Generator().manual_seed(rows))
    size, trains = data.draw(st.none() | st.integers(1, 8)), data.draw(st.booleans())
    with torch.set_grad_enabled(trains):
        given = (trainer.model, ids, mask, widths[1], size)
        expected = passes.original(*given, compute_entropy=True)
        got = passes(*given, compute_entropy=True)
    for one, two in zip(expected[:2], got[:2], strict=True):
        assert two.requires_grad == one.requires_grad
        torch.testing.assert_close(two, one, rtol=1e-4, atol=1e-5)
        assert not two[mask[:, widths[0] :] == 0].any()
    assert got[2] is expected[2] is None


@pytest.fixture(scope="module")
def passes_of(tmp_path_factory: Any) -> Any:
    trainer = trainer_of("GRPO", tmp_path_factory.mktemp("passes"))
    return trainer, quadrat.trl.trim(trainer)


@given(
    sizes=st.lists(st.tuples(st.integers(1, 9), st.integers(1, 30)), min_size=1, max_size=7),
    count=st.integers(1, 7),
    spare=st.integers(0, 40),
)
def test_split_by_tokens(sizes: Any, count: int, spare: int) -> None:
    """No split into as many micro-batches computes fewer tokens, and none of them is too large."""
    count = min(count, len(sizes))
    sizes = np.array(sorted(sizes, key=sum, reverse=True))
    each = -(-len(sizes) // count)
    most = each * sum(sizes.max(0)) + spare

    def cost(counts: Any) -> float:
        parts = np.split(sizes, np.cumsum(counts)[:-1])
        tokens = [len(part) * int(part.max(0).sum()) for part in parts]
        return sum(tokens) if max(tokens) <= most else np.inf

    found = split_by_tokens(*sizes.T, count, most)
    assert sum(found) == len(sizes)
    assert len(found) == count
    assert min(found) > 0
    splits = itertools.combinations(range(1, len(sizes)), count - 1)
    every = [np.diff([0, *ends, len(sizes)]).tolist() for ends in splits]
    assert cost(found) == min(map(cost, every))


def asked(model: Any, dtype: Any = torch.float32) -> Any:
    add_fused_lm_head(model.to(dtype))

    def logps(model: Any, ids: Any, mask: Any, kept: int) -> Any:
        labels = ids.masked_fill(mask == 0, -100)
        labels[:, :-kept] = -100
        return model(input_ids=ids, attention_mask=mask, labels=labels, fused_lm_head=True).log_probs[:, -kept:]

    model.train()
    made = sides_of(model, torch.arange(3, 23), 50, logps, half=dtype != torch.float32)
    assert all(module.training for module in model.modules())
    return made


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_models_are_asked(dtype: Any) -> None:
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "ffn_dim": 16}
    opt = OPTForCausalLM(OPTConfig(vocab_size=64, word_embed_proj_dim=16, max_position_embeddings=64, **sizes))
    assert asked(opt, dtype)[:2] == (True, True)  # learned positions, which the mask gives
    assert asked(policy(), dtype)[:2] == (True, True)
    assert asked(policy("GPT-2"), dtype)[:2] == (False, True)
    growing = {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10000.0}
    assert asked(policy(rope_parameters=growing), dtype)[:2] == (False, False)


def test_unknown_code(tmp_path: Path, monkeypatch: Any) -> None:
    """Of TRL, or of a trainer derived from its own: a warning, and what TRL does."""

    class Own(trl.GRPOTrainer):
        def _get_per_token_logps_and_entropies(self, *args: Any, **kwargs: Any) -> Any:
            return super()._get_per_token_logps_and_entropies(*args, **kwargs)

    trainer = trainer_of("GRPO", tmp_path, base=Own)
    with pytest.warns(UserWarning, match="_get_per_token_logps_and_entropies"):
        made = quadrat.trl.trim(trainer)
    assert str(made).startswith("passes are as before")
    assert online.PASS not in vars(trainer)

    split = grpo_trainer.split_tensor_dict
    monkeypatch.setattr(grpo_trainer, "split_tensor_dict", lambda *given: [*split(*given)])
    trainer = trainer_of("GRPO", tmp_path)
    with pytest.warns(UserWarning, match="split_tensor_dict"):
        made = quadrat.batch_by_tokens(trainer)
    trainer.train()
    assert "rows stay in their micro-batches" in str(made)
    assert made.passes.computed < made.passes.computed_before

    monkeypatch.undo()
    monkeypatch.setitem(imitated.CODE, "trl.trainer.utils.add_fused_lm_head", reward)  # as if TRL had another one
    imitated.changed.cache_clear()
    imitated._warn_of.cache_clear()
    with pytest.warns(UserWarning, match="does not know `trl.trainer.utils.add_fused_lm_head` of TRL"):
        made = quadrat.batch_by_tokens(trainer_of("RLOO", tmp_path))
    imitated.changed.cache_clear()
    assert "Passes are as before: trl.trainer.utils.add_fused_lm_head of TRL" in str(made)


def test_refused(tmp_path: Path) -> None:
    trainer = trainer_of("RLOO", tmp_path)
    with pytest.raises(ValueError, match="max_tokens: RLOOTrainer generates its rows"):
        quadrat.batch_by_tokens(trainer, 512)
    with pytest.raises(ValueError, match="window, seed"):
        quadrat.batch_by_tokens(trainer, window=8, seed=1)
    quadrat.trl.trim(trainer)
    with pytest.raises(ValueError, match="trimmed already"):
        quadrat.batch_by_tokens(trainer)
    args = OnlineDPOConfig(str(tmp_path), **QUIET, per_device_train_batch_size=2)
    options = {"args": args, "train_dataset": trainer.train_dataset}
    dpo = OnlineDPOTrainer(policy(), policy(), reward_funcs=reward, processing_class=tokenizer(), **options)
    for refused in (quadrat.trl.trim, quadrat.batch_by_tokens):
        with pytest.raises(TypeError, match="pads each micro-batch to its own longest row: there is nothing to cut"):
            refused(dpo)


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["dapo", "grpo"])
def test_two_processes(loss: str, tmp_path: Path) -> None:
    """The weights of TRL, and micro-batches that have as many rows, in order of length, on both."""
    in_two("online_in_two.py", tmp_path, loss)
    both = [torch.load(tmp_path / f"{rank}.pt") for rank in (0, 1)]
    for one in both:
        assert "rows of similar length" in one["said"]
        assert difference(one["expected"], one["got"]) < 1e-5
        assert difference(one["got"], both[0]["got"]) == 0
    rows, longest = np.array([one["micro_batches"] for one in both]).transpose(2, 0, 1)
    assert rows.shape == (2, 16)
    assert (rows[0] == rows[1]).all()
    assert (rows == 2).all() == (loss == "grpo")
    assert (np.diff(longest.reshape(2, 4, 4)) <= 0).all()
