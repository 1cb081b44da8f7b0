"""Options that errors name are those of the function that was called, or of one that is named beside them."""

import inspect
import re
import tempfile
from typing import Any

import pytest
import transformers

import quadrat
from support.strategies import make_tokenizer
from support.trainer import arguments, tiny


def options_of(value: Any) -> set[str]:
    try:
        return set(inspect.signature(value).parameters)
    except (TypeError, ValueError):
        return set()


ROWS = [{"input_ids": [5] * length} for length in (3, 9, 20)]


def by_tokens(max_tokens: int, **options: Any) -> Any:
    model = tiny(transformers.BertForSequenceClassification)
    collator = quadrat.DataCollatorWithPadding(make_tokenizer())
    args = arguments(tempfile.mkdtemp(), per_device_train_batch_size=2)
    trainer = transformers.Trainer(model, args, train_dataset=ROWS, data_collator=collator)
    return quadrat.batch_by_tokens(trainer, max_tokens, **options)


REFUSED = [
    (quadrat.batch_by_tokens, lambda: by_tokens(8)),
    (quadrat.TokenBudgetBatchSampler, lambda: quadrat.TokenBudgetBatchSampler(ROWS, 8)),
    (quadrat.TokenBudgetBatchSampler, lambda: quadrat.TokenBudgetBatchSampler(ROWS, 8, multiple_of=16)),
    (quadrat.batching.plan_packs, lambda: quadrat.batching.plan_packs(ROWS, 8)),
    (quadrat.PackedDataset, lambda: quadrat.PackedDataset(ROWS, 8)),
    (quadrat.data.PackedStream, lambda: list(quadrat.data.PackedStream(ROWS, 8))),
    (quadrat.BatchedStream, lambda: list(quadrat.BatchedStream(ROWS, 8))),
    (quadrat.DataCollatorWithFlattening, lambda: quadrat.DataCollatorWithFlattening()([
        {"input_ids": ["a"], "seq_lengths": [1]}
    ])),
    (quadrat.pad, lambda: quadrat.pad([[1], [2.5]])),
    (quadrat.flatten, lambda: quadrat.flatten([[1], [2.5]])),
    (quadrat.Ragged.from_rows, lambda: quadrat.Ragged.from_rows([[1], [2.5]])),
]  # fmt: skip


@pytest.mark.parametrize(("caller", "call"), REFUSED)
def test_options_that_errors_name_are_those_of_the_caller(caller, call):
    with pytest.raises((TypeError, ValueError)) as raised:
        call()
    message = str(raised.value)
    for name, options in re.findall(r"(?:quadrat\.)?([\w.]+)\(([^()]*)\)", message):  # another function's are its own
        if (other := getattr(quadrat, name, None)) is not None:
            assert set(re.findall(r"(\w+)=", options)) <= options_of(other), message
            message = message.replace(options, "")
    assert set(re.findall(r"(?<![\w.])([a-z_]+)=", message)) <= options_of(caller) | {"padded"}, message
