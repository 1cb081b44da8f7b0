"""With everything patched, what else TRL does is what it was: datasets that it prepares, GRPO, evaluation."""

import warnings
from typing import Any

import datasets
import pytest

from support import standins
from support.compare import frozen
from support.patched import unchanged
from support.standins import TEXTS

trl = pytest.importorskip("trl", reason="TRL, which is patched, is not installed")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # what TRL's dependencies say when they are imported
    from trl import GRPOConfig, GRPOTrainer, SFTConfig, SFTTrainer

    from support.online import QUIET, reward


def trained(cls: Any, config: Any, folder: Any, data: datasets.Dataset, **options: Any) -> Any:
    steps = {"max_steps": 2, "per_device_train_batch_size": 4, "logging_steps": 1}
    rewards = {"reward_funcs": options.pop("reward_funcs")} if "reward_funcs" in options else {}
    trainer = cls(
        model=standins.decoder(),
        args=config(str(folder), **QUIET, **steps, **options),
        train_dataset=data,
        eval_dataset=data,
        processing_class=standins.decoder_tokenizer(),
        **rewards,
    )
    trainer.train()
    return trainer


def weights(trainer: Any) -> Any:
    return {name: frozen(weight) for name, weight in trainer.model.state_dict().items()}


@pytest.mark.parametrize(
    "options", [{}, {"packing": True, "max_length": 16, "eval_packing": False}], ids=["", "packed"]
)
@unchanged
def test_datasets_and_evaluation(options, tmp_path):
    messages = {"prompt": ("user", TEXTS), "completion": ("assistant", TEXTS[::-1])}
    rows = datasets.Dataset.from_dict(
        {name: [[{"role": role, "content": text}] for text in texts] for name, (role, texts) in messages.items()}
    )
    trainer = trained(SFTTrainer, SFTConfig, tmp_path, rows, **options)
    scores = {name: value for name, value in trainer.evaluate().items() if not name.endswith(("runtime", "per_second"))}
    both = (trainer.train_dataset, trainer.eval_dataset)
    prepared = [frozen([dataset[:], repr(dataset.features), dataset.format]) for dataset in both]
    fingerprints = trainer.eval_dataset._fingerprint, None if options else trainer.train_dataset._fingerprint
    return prepared, fingerprints, scores, weights(trainer)


@unchanged
def test_grpo(tmp_path):
    rows = datasets.Dataset.from_dict({"prompt": TEXTS})
    options = {"num_generations": 2, "max_completion_length": 6, "reward_funcs": reward}
    trainer = trained(GRPOTrainer, GRPOConfig, tmp_path, rows, **options)
    logged = [
        {name: value for name, value in entry.items() if "time" not in name} for entry in trainer.state.log_history
    ]
    return [entry.get("loss") for entry in logged], [entry.get("reward") for entry in logged], weights(trainer)
