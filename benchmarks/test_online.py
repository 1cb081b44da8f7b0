"""An optimizer step of TRL's GRPOTrainer on a CPU, with given completions: as it is, and with padding removed.

The step is the forward and backward passes of all micro-batches and the optimizer's; completions and rewards are made
before. The sums of the losses and the gradients must be equal.
"""

import math
import time
import types
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
import torch

import quadrat
from benchmarks.jobs import Job, size, timed
from benchmarks.test_remove_padding import IS_4, VOCABULARY, decoder, two_threads

ROWS, MICRO_BATCHES, GROUP = 4, 8, 8


def trainer_of(folder: str, longest: tuple[int, int]) -> Any:
    """Prompts and completions of lognormal lengths, up to `longest`; TRL pads a step's rows to one width."""
    import datasets
    import trl

    from support.online import QUIET, reward, tokenizer

    torch.manual_seed(0)
    draw = np.random.default_rng(0)

    def lengths(count: int, most: int) -> list[int]:
        drawn = (draw.lognormal(math.log(most / 5), 0.9, count) + 2).astype(int)
        return np.minimum([most, *drawn], most)[:count].tolist()

    prompts = [" ".join(f"w{word}" for word in draw.integers(0, 60, n)) for n in lengths(8, longest[0])]
    args = trl.GRPOConfig(
        folder,
        **QUIET,
        **{"per_device_train_batch_size": ROWS, "gradient_accumulation_steps": MICRO_BATCHES, "max_steps": 1},
        **{"num_generations": GROUP, "max_completion_length": longest[1], "beta": 0.0, "loss_type": "dapo"},
        **{"dataloader_pin_memory": False, "optim": "sgd", "learning_rate": 1e-9, "max_grad_norm": 1e9},
        gradient_checkpointing=False,
    )
    options = {"train_dataset": datasets.Dataset.from_dict({"prompt": prompts}), "processing_class": tokenizer()}
    trainer = trl.GRPOTrainer(decoder(VOCABULARY, 768), reward, args=args, **options)

    def completions(_: Any, prompt_ids: Any, *__: Any, **___: Any) -> Any:
        return [[*draw.integers(3, 60, n).tolist(), 2] for n in lengths(len(prompt_ids), longest[1] - 1)], None

    trainer._generate_single_turn = types.MethodType(completions, trainer)
    return trainer


class Step:
    """The micro-batches of a trainer's first step, again and again."""

    def __init__(self, trainer: Any) -> None:
        self.trainer, self.batches = trainer, list[dict[str, Any]]()
        self.compute = trainer.compute_loss
        trainer.compute_loss = self.note
        trainer.train()
        trainer.compute_loss = self.compute

    def note(self, model: Any, inputs: dict[str, Any], **options: Any) -> torch.Tensor:
        self.batches.append(dict(inputs))
        return self.compute(model, inputs, **options)  # type: ignore[no-any-return]

    def __call__(self) -> float:
        model, total = self.trainer.model, 0.0
        for batch in self.batches:
            loss = self.compute(model, dict(batch))
            loss.backward()
            total += loss.item()
        self.trainer.optimizer.step()
        model.zero_grad()
        return total

    def gradients(self) -> list[torch.Tensor]:
        for batch in self.batches:
            self.compute(self.trainer.model, dict(batch)).backward()
        gradients = [weight.grad.clone() for weight in self.trainer.model.parameters() if weight.grad is not None]
        self.trainer.model.zero_grad()
        return gradients

    def masks(self) -> list[torch.Tensor]:
        return [batch[name] for batch in self.batches for name in ("prompt_mask", "completion_mask")]


def optimizer_step(longest: tuple[int, int], threads: int) -> Job:
    with TemporaryDirectory() as folder:
        plain, ours = (trainer_of(str(Path(folder, name)), size(longest, (12, 8))) for name in "ab")
        removed = quadrat.remove_padding(ours)
        steps = {"transformers": Step(plain), "quadrat": Step(ours)}
    expected = steps["transformers"].gradients()
    before = removed.computed
    gradients = steps["quadrat"].gradients()
    padded, real = (sum(getattr(mask, what)() for mask in steps["quadrat"].masks()) for what in ("numel", "sum"))
    tokens = {"computed": removed.computed - before, "padded": padded}
    facts = {"threads": threads, **tokens, "padding": 1 - int(real) / padded}

    def check() -> None:
        assert steps["quadrat"]() == pytest.approx(steps["transformers"](), rel=1e-4, abs=1e-6)
        for reference, gradient in zip(expected, gradients, strict=True):
            assert (reference - gradient).norm() <= 1e-4 * reference.norm()

    around = dict.fromkeys(steps, two_threads) if threads == 2 else {}
    return Job(steps, facts, base="transformers", check=check, around=around)


LONGEST = {"prompts of up to 256, completions of up to 256": (256, 256), "512 and 128": (512, 128)}
CASES = {
    f"{name}, {threads} thread{'s' * (threads > 1)}": partial(optimizer_step, longest, threads)
    for name, longest in LONGEST.items()
    for threads in ((1, 2) if longest == (256, 256) else (1,))
}
pytestmark = pytest.mark.skipif(IS_4, reason="one major version is enough")
ONE, TWO = ({case: make for case, make in CASES.items() if threads in case} for threads in ("1 thread", "2 threads"))
test_one_thread = timed(ONE, small=1, timer=time.process_time, least=2)
test_two_threads = timed(TWO, small=1, least=2, seconds=0)
