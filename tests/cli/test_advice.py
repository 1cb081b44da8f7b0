"""What `python -m quadrat waste` recommends."""

import dataclasses
import functools

import pytest

import quadrat
from quadrat.cli import waste
from quadrat.cli.waste import LITTLE_PADDING as LITTLE
from quadrat.cli.waste import advise, code
from support.trainer import tiny

SIZES = {"batch_size": 4, "max_tokens": 128}


def costs_of(dynamic, budget=0.03, fixed=0.9):
    """Costs of 1,000,000 tokens with these shares of padding."""
    shares = {waste.FIXED: fixed, waste.DYNAMIC: dynamic, waste.BUDGET: budget}
    cost = waste.Cost(batches=100, largest_batch=0, tokens=1_000_000, computed=0, shapes=1, scores=0)
    return {name: dataclasses.replace(cost, computed=round(1e6 / (1 - share))) for name, share in shares.items()}


@pytest.mark.parametrize(
    ("dynamic", "choice", "line"),
    [
        (LITTLE - 0.001, "Pad to the longest row of each batch: only 4.9%", "DataCollatorWithPadding"),
        (LITTLE + 0.001, "Have the model compute no padding: 5.1% of", "remove_padding"),
        (0.72, "Have the model compute no padding: 72.0% of", "remove_padding"),
    ],
)
def test_advice_and_code_follow_the_numbers(dynamic, choice, line):
    costs = costs_of(dynamic)
    said = advise(costs)
    assert 2 <= len(said) <= 3
    assert said[0].startswith(choice)
    assert all(line in "".join(code(costs, **SIZES)[purpose]) for purpose in ("A DataLoader", "Trainer"))


def test_advice_warns_of_one_length_only_where_it_costs():
    assert "10.0 times" in advise(costs_of(0.01))[-1]
    assert len(advise(costs_of(0.01, fixed=0.02))) == 2


def test_the_code_has_the_options_of_the_plan():
    def line(**options):
        return list(code(costs_of(0.72), **(SIZES | options)).values())[-1][1].partition("(dataset), ")[2]

    assert line() == "max_tokens=128)"
    assert line(pad_to_multiple_of=8, longest=128) == "max_tokens=128, multiple_of=8)"
    assert line(pad_to_multiple_of=48, longest=97) == 'max_tokens=128, multiple_of=48, overlong="alone")'


@pytest.mark.parametrize("pad_to_multiple_of", [None, 8])
@pytest.mark.parametrize("dynamic", [0.01, 0.72])
def test_the_code_runs(dynamic, pad_to_multiple_of, tmp_path, monkeypatch):
    """Each block by itself: all tokens come out of a DataLoader, and a Trainer makes a step."""
    import datasets
    import transformers
    from torch.utils.data import DataLoader

    monkeypatch.chdir(tmp_path)
    lengths = [3 + n % 61 for n in range(40)]
    dataset = datasets.Dataset.from_dict({"input_ids": [[5] * n for n in lengths], "label": [0] * 40})
    model = tiny(transformers.BertForSequenceClassification)
    (tmp_path / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a"]))
    few = {"max_steps": 1, "use_cpu": True, "report_to": "none", "disable_tqdm": True, "save_strategy": "no"}
    for purpose, lines in code(costs_of(dynamic), **SIZES, pad_to_multiple_of=pad_to_multiple_of, longest=63).items():
        names = {
            "quadrat": quadrat,
            "DataLoader": DataLoader,
            "Trainer": transformers.Trainer,
            "TrainingArguments": functools.partial(transformers.TrainingArguments, **few),
            "dataset": dataset,
            "tokenizer": transformers.BertTokenizerFast(str(tmp_path / "vocab.txt")),
            "model": model,
        }
        exec("\n".join(lines), names)
        if purpose.startswith("A DataLoader"):
            batches = list(names["loader"])
            assert sum(int((batch["input_ids"] == 5).sum()) for batch in batches) == sum(lengths)
            assert all(batch["input_ids"].shape[1] % (pad_to_multiple_of or 1) == 0 for batch in batches)
        else:
            assert names["trainer"].train().global_step == 1
