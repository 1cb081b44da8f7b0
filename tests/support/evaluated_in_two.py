"""One of two processes that evaluate, in order and by length: the same mean loss, predictions and labels."""

import sys
from typing import Any

import numpy as np
from transformers import BertForSequenceClassification, DataCollatorWithPadding, Trainer

from quadrat.integration.evaluate_by_length import evaluate_by_length
from support.strategies import make_tokenizer
from support.trainer import arguments, tiny


class Weighing(Trainer):
    """The loss of a batch is a mean over its rows."""

    def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False, **_: Any) -> Any:
        output = model(input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"])
        loss = (inputs["labels"].float() ** 2).mean()
        return (loss, {"loss": loss, **output}) if return_outputs else loss


def trainer_of(**options: Any) -> Trainer:
    given = arguments(sys.argv[1], per_device_eval_batch_size=4, ddp_backend="gloo", **options)
    model, collator = tiny(BertForSequenceClassification), DataCollatorWithPadding(make_tokenizer())
    return Weighing(model, given, data_collator=collator)


for count in (3, 7, 8, 9, 30):
    rows = [{"input_ids": [5] * (1 + 7 * row % 23), "labels": row} for row in range(count)]
    before, after = trainer_of(), trainer_of()
    evaluate_by_length(after)
    expected, found = before.predict(rows), after.predict(rows)
    assert found.label_ids.tolist() == expected.label_ids.tolist() == list(range(count))
    np.testing.assert_allclose(found.predictions, expected.predictions, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(found.metrics["test_loss"], expected.metrics["test_loss"], rtol=1e-5)
try:
    evaluate_by_length(trainer_of(eval_use_gather_object=True))
except ValueError as error:
    assert "TrainingArguments(eval_use_gather_object=True)" in str(error)  # noqa: PT017
else:
    raise AssertionError
