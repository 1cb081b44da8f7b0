"""A Trainer of a tiny model, and what it lost at each step."""

from typing import Any

from transformers import (
    BertConfig,
    BertForSequenceClassification,
    BertLMHeadModel,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    set_seed,
)

import quadrat
from support.strategies import make_tokenizer

# Without dropout, which draws for each place of a batch.
DETERMINISTIC = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


class Losses(Trainer):
    """Keeps each step's loss, unrounded. No batch reaches the model deferred."""

    def compute_loss(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        assert not isinstance(inputs, quadrat.deferred.DeferredBatch)
        result = super().compute_loss(model, inputs, *args, **kwargs)
        loss = result[0] if isinstance(result, tuple) else result
        self.__dict__.setdefault("losses", []).append(loss.item())
        return result


class PositioningCollator(Losses):
    """Keeps the first tokens and the shape of each batch that it trains on, and the shapes of those it evaluates."""

    def compute_loss(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        ids = inputs["input_ids"]
        if model.training:
            self.__dict__.setdefault("seen", []).append((ids[..., 0].flatten().tolist(), ids.shape))
        else:
            self.__dict__.setdefault("evaluated", []).append(tuple(ids.shape))
        return super().compute_loss(model, inputs, *args, **kwargs)

    @property
    def numbers(self) -> list[int]:
        return [number for numbers, _ in self.seen for number in numbers]

    @property
    def trained(self) -> list[tuple[int, ...]]:
        return [tuple(shape) for _, shape in self.seen]


class Stop(TrainerCallback):
    """Stops after so many steps, as if the machine had."""

    def __init__(self, steps: int) -> None:
        self.steps = steps

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        control.should_training_stop = state.global_step >= self.steps


def tiny(cls: Any, **options: Any) -> Any:
    set_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    settings = {"vocab_size": 400, "num_labels": 3, "is_decoder": cls is BertLMHeadModel, **sizes, **options}
    return cls(BertConfig(**settings))


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


def trainer_of(
    folder: Any, dataset: Any, collator: Any = None, model: Any = None, cls: Any = PositioningCollator, **options: Any
) -> Any:
    """A Trainer for one epoch in batches of 8 rows; by default of a classifier whose rows are padded."""
    collator = quadrat.DataCollatorWithPadding(make_tokenizer()) if collator is None else collator
    settings = arguments(folder, **{"num_train_epochs": 1, "per_device_train_batch_size": 8, **options})
    model = tiny(BertForSequenceClassification, **DETERMINISTIC) if model is None else model
    return cls(model=model, args=settings, train_dataset=dataset, data_collator=collator)
