"""A Trainer of a tiny model, and what it lost at each step."""

from typing import Any

from transformers import BertConfig, BertLMHeadModel, Trainer, TrainerCallback, TrainingArguments, set_seed

import quadrat


class Losses(Trainer):
    """Keeps each step's loss, unrounded. No batch reaches the model deferred."""

    def compute_loss(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        assert not isinstance(inputs, quadrat.deferred.DeferredBatch)
        result = super().compute_loss(model, inputs, *args, **kwargs)
        loss = result[0] if isinstance(result, tuple) else result
        self.__dict__.setdefault("losses", []).append(loss.item())
        return result


class Stop(TrainerCallback):
    """Stops after so many steps, as if the machine had."""

    def __init__(self, steps: int) -> None:
        self.steps = steps

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        control.should_training_stop = state.global_step >= self.steps


def tiny(cls: Any, **options: Any) -> Any:
    set_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    given = {"vocab_size": 400, "num_labels": 3, "is_decoder": cls is BertLMHeadModel, **sizes, **options}
    return cls(BertConfig(**given))


def arguments(folder: Any, **options: Any) -> TrainingArguments:
    """Of a run on the CPU that says nothing and saves nothing."""
    quiet = {"report_to": "none", "save_strategy": "no", "disable_tqdm": True, "use_cpu": True}
    sizes = {"per_device_train_batch_size": 4, "dataloader_pin_memory": False}
    return TrainingArguments(str(folder), **{**quiet, **sizes, **options})


def trained(cls: Any, dataset: Any, given: TrainingArguments, **options: Any) -> Losses:
    """A Trainer after its steps. given: `arguments` with `max_steps`."""
    trainer = Losses(model=tiny(cls), args=given, train_dataset=dataset, **options)
    trainer.train()
    assert len(trainer.losses) == given.max_steps * given.gradient_accumulation_steps
    return trainer
