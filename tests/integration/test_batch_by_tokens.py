"""`batch_by_tokens`: a Trainer's batches by token budget."""

import math
import random
from collections import Counter
from typing import Any

import datasets
import pytest
import torch
from torch.utils.data import SequentialSampler
from transformers import (
    BertForMultipleChoice,
    DataCollatorWithPadding,
    TrainerCallback,
)

import quadrat
from quadrat.batching import AttentionCost
from support.strategies import make_tokenizer
from support.streams import Torch
from support.trainer import PositioningCollator, tiny, trainer_of


def lengths() -> list[int]:
    draw = random.Random(0)
    return [min(60, int(draw.lognormvariate(2.5, 1)) + 1) for _ in range(96)]


def rows() -> list[dict[str, Any]]:
    # The first token is the row's number.
    return [
        {"input_ids": [number, *[5] * (length - 1)], "labels": number % 2} for number, length in enumerate(lengths())
    ]


@pytest.mark.parametrize("form", ["dataset", "list"])
@pytest.mark.parametrize("accumulated", [1, 2])
def test_each_row_once_an_epoch(tmp_path, form, accumulated):
    data = datasets.Dataset.from_list([{**row, "text": "removed"} for row in rows()]) if form == "dataset" else rows()
    trainer = trainer_of(tmp_path, data, num_train_epochs=2, gradient_accumulation_steps=accumulated)
    plan = quadrat.batch_by_tokens(trainer)
    trainer.train()
    assert Counter(trainer.numbers) == Counter([*range(96)] * 2)
    assert all(shape.numel() <= plan.max_tokens for _, shape in trainer.seen)
    assert trainer.state.global_step == 2 * plan.steps
    assert plan.steps_before == 12 // accumulated
    epochs = trainer.numbers[:96], trainer.numbers[96:]
    assert epochs[0] != epochs[1]
    before = ", as before" if plan.steps == plan.steps_before else f" instead of {plan.steps_before:,}"
    assert f"{plan.steps:,} steps an epoch{before}. A step has" in str(plan)
    assert "1 step an epoch instead of 12. A step has" in str(plan._replace(steps=1, steps_before=12))
    assert sum(shape.numel() for _, shape in trainer.seen) < 1.3 * 2 * sum(lengths())


@pytest.mark.parametrize("size", [2, 4, 8])
@pytest.mark.parametrize("accumulated", [1, 2])
@pytest.mark.parametrize("longest", [[3, 4, 5], range(1, 22), range(1, 40), [*range(1, 10), 300]])
def test_steps_are_about_those_of_before(tmp_path, longest, size, accumulated):
    data = [{"input_ids": [5] * length, "labels": 0} for length in random.Random(0).choices(longest, k=224)]
    options = {"per_device_train_batch_size": size, "gradient_accumulation_steps": accumulated}
    trainer = trainer_of(tmp_path, data, **options)
    before = math.ceil(len(trainer.get_train_dataloader()) / accumulated)
    plan = quadrat.batch_by_tokens(trainer)
    steps = math.ceil(len(trainer.get_train_dataloader()) / accumulated)
    assert (plan.steps_before, plan.steps) == (before, steps)
    assert abs(steps - before) <= before / 20
    assert plan.max_tokens >= max(longest)
    assert ("rows:" in str(plan)) == (plan.max_rows is not None)


@pytest.mark.parametrize("count", [1, 8, 63, 64, 65])
@pytest.mark.parametrize("drop_last", [False, True])
def test_steps_of_before_are_those_of_the_loader(tmp_path, count, drop_last):
    data = rows()[:count]
    trainer = trainer_of(tmp_path, data, dataloader_drop_last=drop_last, gradient_accumulation_steps=3)
    before = math.ceil(len(trainer.get_train_dataloader()) / 3)
    assert quadrat.batch_by_tokens(trainer, 200).steps_before == max(before, 1)


def test_nothing_changes_where_a_budget_saves_nothing(tmp_path):
    same, varied = [{"input_ids": [5] * 7, "labels": 0}] * 20, rows()
    for data, size, why in ((same, 8, "all rows have one width"), (varied, 1, "a batch has one row")):
        trainer = trainer_of(tmp_path, data, per_device_train_batch_size=size)
        before, collator = vars(trainer.args).copy(), trainer.data_collator
        plan = quadrat.batch_by_tokens(trainer)
        assert str(plan) == f"batches are as before: {why}, so a token budget would save nothing."
        assert plan.steps == plan.steps_before == len(trainer.get_train_dataloader())
        assert trainer.train_dataset is data
        assert trainer.data_collator is collator
        assert vars(trainer.args) == before
    for flat in (
        quadrat.DataCollatorWithFlattening(),
        quadrat.DataCollatorForTokenClassification(make_tokenizer(), padding_free=True),
    ):
        trainer = trainer_of(tmp_path, varied, flat)
        message = (
            "batches are as before: the collator joins rows without padding, so a token budget would save nothing."
        )
        assert str(quadrat.batch_by_tokens(trainer)) == message
        assert trainer.train_dataset is varied
        assert "at most 256 tokens" in str(quadrat.batch_by_tokens(trainer, 256))
    given_plan = quadrat.batch_by_tokens(trainer_of(tmp_path, same), 28)
    assert str(given_plan).endswith("A step has 4.0 rows on average instead of 8.")


@pytest.mark.parametrize("collator", ["transformers", "function", "subclass"])
def test_other_collators(tmp_path, collator):
    class WithoutImages(quadrat.DataCollatorWithPadding):
        def __call__(self, features: Any, *args: Any) -> Any:
            assert [feature.pop("images", None) for feature in features] == [None] * len(features)
            return super().__call__(features, *args)

    def stacked(features: Any) -> Any:
        ids = quadrat.pad([feature["input_ids"] for feature in features], return_tensors="pt")
        return {"input_ids": ids, "labels": torch.tensor([feature["labels"] for feature in features])}

    of_class = {"transformers": DataCollatorWithPadding, "subclass": WithoutImages}
    chosen = of_class[collator](make_tokenizer()) if collator in of_class else stacked
    trainer = trainer_of(tmp_path, rows(), chosen)
    quadrat.batch_by_tokens(trainer, 256)
    assert isinstance(trainer.data_collator, quadrat.DataCollatorWithPadding) == (collator == "transformers")
    trainer.train()
    assert sorted(trainer.numbers) == list(range(96))
    assert trainer.evaluate(rows()[:10])["eval_loss"] > 0  # batches of plain rows


def test_samples_of_a_second_are_rows(tmp_path):
    seen: list[dict[str, Any]] = []

    class Seeing(TrainerCallback):  # type: ignore[misc]
        def on_log(self, *args: Any, logs: Any, **options: Any) -> None:
            seen.append(dict(logs))

    trainer = trainer_of(tmp_path, rows(), num_train_epochs=3)
    trainer.add_callback(Seeing())
    plan = quadrat.batch_by_tokens(trainer, 200)
    metrics = trainer.train().metrics
    for logged in (metrics, trainer.state.log_history[-1], seen[-1]):
        rows_of_a_step = logged["train_samples_per_second"] / logged["train_steps_per_second"]
        assert rows_of_a_step == pytest.approx(96 / plan.steps, rel=0.01)
    assert plan.steps != 96


def test_a_trainer_that_has_trained_is_warned_of(tmp_path, caplog):
    trainer = trainer_of(tmp_path, rows())
    trainer.train()
    quadrat.batch_by_tokens(trainer, 256)
    assert "the Trainer has begun to train before: only its next training changes" in caplog.text
    trainer.seen.clear()
    trainer.train()
    assert sorted(trainer.numbers) == list(range(96))
    assert max(shape.numel() for _, shape in trainer.seen) <= 256
    caplog.clear()
    quadrat.batch_by_tokens(trainer_of(tmp_path, rows()))
    assert "begun to train" not in caplog.text


def test_misspelt_arguments(tmp_path):
    trainer = trainer_of(tmp_path, rows())
    with pytest.raises(TypeError, match=r"batch_by_tokens\(\) got an .* 'max_token': did you mean max_tokens\?$"):
        quadrat.batch_by_tokens(trainer, max_token=64)
    with pytest.raises(TypeError, match=r"'order': did you mean trainer, max_tokens, lengths, .*\?$"):
        quadrat.batch_by_tokens(trainer, order=[])


class Chooses(PositioningCollator):
    def get_train_dataloader(self) -> Any:
        return super().get_train_dataloader()


def test_what_it_cannot_do(tmp_path):
    with pytest.raises(TypeError, match=r"expected a transformers.Trainer or a DataLoader, not int"):
        quadrat.batch_by_tokens(3)
    with pytest.raises(TypeError, match=r"cannot be indexed by row.*BatchedStream"):
        quadrat.batch_by_tokens(trainer_of(tmp_path, Torch(rows()), max_steps=2))
    with pytest.raises(ValueError, match="Chooses chooses rows in its own way: it has a get_train_dataloader"):
        quadrat.batch_by_tokens(trainer_of(tmp_path, rows(), cls=Chooses))
    with pytest.raises(ValueError, match="no train_dataset"):
        quadrat.batch_by_tokens(trainer_of(tmp_path, None))
    trainer = trainer_of(tmp_path, rows())
    with pytest.raises(ValueError, match=r"more than max_tokens=8 allow; give 60 or more$"):
        quadrat.batch_by_tokens(trainer, 8)
    with pytest.raises(ValueError, match="lengths are empty: there are no rows to batch"):
        quadrat.batch_by_tokens(trainer_of(tmp_path, []))
    assert trainer.args.per_device_train_batch_size == 8  # nothing changed
    quadrat.batch_by_tokens(trainer)
    with pytest.raises(
        ValueError, match=r"planned already: to have other batches, make the Trainer anew \(in a notebook"
    ):
        quadrat.batch_by_tokens(trainer)


class Shuffles(PositioningCollator):
    """As many frameworks' trainers: rows in random order, unless told otherwise."""

    in_order = False

    def _get_train_sampler(self, *args: Any) -> Any:
        return SequentialSampler(self.train_dataset) if self.in_order else super()._get_train_sampler(*args)


def test_trainers_with_a_sampler_of_their_own(tmp_path):
    trainer = trainer_of(tmp_path, rows(), cls=Shuffles)
    trainer.in_order = True
    with pytest.raises(ValueError, match="Shuffles chooses rows in its own way: it has a _get_train_sampler"):
        quadrat.batch_by_tokens(trainer)
    trainer.in_order = False
    quadrat.batch_by_tokens(trainer)
    trainer.train()
    assert sorted(trainer.numbers) == list(range(96))


@pytest.mark.parametrize("given", ["auto", 20])
def test_batches_that_take_the_same_time(tmp_path, given):
    trainer = trainer_of(tmp_path, rows())
    plan = quadrat.batch_by_tokens(trainer, 128, attention=given)
    crossover = AttentionCost.of(trainer.model).crossover if given == "auto" else given
    assert plan.attention == AttentionCost(crossover)
    assert str(plan).startswith("batches that cost at most as much as 128 tokens in rows of median length: ")
    trainer.train()
    assert sorted(trainer.numbers) == list(range(96))
    limit = 128 * (1 + sorted(lengths())[47] / crossover)
    assert all(
        len(numbers) == 1 or len(numbers) * width * (1 + width / crossover) <= limit + 1
        for numbers, (_, width) in trainer.seen
    )


def test_attention_of_rows_of_several_sequences(tmp_path):
    choices = [{"input_ids": [row["input_ids"], row["input_ids"]], "label": 0} for row in rows()]
    collator = quadrat.DataCollatorForMultipleChoice(make_tokenizer())
    trainer = trainer_of(tmp_path, choices, collator, tiny(BertForMultipleChoice))
    plan = quadrat.batch_by_tokens(trainer, 256, attention=20)
    assert plan.attention == AttentionCost(40.0), "the two sequences of a row are half as wide"
