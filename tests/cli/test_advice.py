"""Which way of batching `python -m quadrat waste` recommends."""

import dataclasses

import pytest

from quadrat.cli import waste
from quadrat.cli.advice import ENOUGH_GROUPED, LITTLE_PADDING, advise, grouping


def costs_of(dynamic, grouped, fixed=0.9):
    """Costs of 1,000,000 tokens with these shares of padding."""
    shares = {waste.FIXED: fixed, waste.DYNAMIC: dynamic, waste.GROUPED: grouped, waste.BUDGET: 0, waste.FLATTENED: 0}
    cost = waste.Cost("", batches=100, largest_batch=0, tokens=1_000_000, computed=0, scores=0)
    return [dataclasses.replace(cost, name=name, computed=round(1e6 / (1 - share))) for name, share in shares.items()]


@pytest.mark.parametrize(
    ("dynamic", "grouped", "choice", "setting"),
    [
        (LITTLE_PADDING - 0.001, 0, "Pad to the longest row of each batch: only 4.9%", "DataCollatorWithPadding"),
        (LITTLE_PADDING + 0.001, 0.03, "Group rows by length: padding falls from 5.1% to 3.0%", grouping()),
        (0.72, ENOUGH_GROUPED - 0.001, "Group rows by length: padding falls from 72.0% to 9.9%", grouping()),
        (0.72, ENOUGH_GROUPED + 0.001, "Flatten the batches: rows grouped by length still leave 10.1%", "Flattening"),
    ],
)
def test_advice_follows_the_numbers(dynamic, grouped, choice, setting):
    said = advise(costs_of(dynamic, grouped))
    assert 2 <= len(said) <= 3
    assert said[0].startswith(choice)
    assert setting in said[1]


def test_advice_warns_of_one_length_only_where_it_costs():
    assert "10.0 times" in advise(costs_of(0.01, 0.01))[-1]
    assert len(advise(costs_of(0.01, 0.01, fixed=0.02))) == 2


def test_the_setting_that_groups_is_one_of_the_installed_transformers():
    from transformers import TrainingArguments

    name = grouping().removeprefix("TrainingArguments(").partition("=")[0]
    assert name in {field.name for field in dataclasses.fields(TrainingArguments)}
