"""Which way of batching `python -m quadrat waste` recommends."""

import dataclasses

import pytest

import quadrat
from quadrat._names import HOMES
from quadrat.cli import waste
from quadrat.cli.advice import ENOUGH_WITH_BUDGET, LITTLE_PADDING, advise, code, grouping

SIZES = {"batch_size": 4, "max_length": 64, "max_tokens": 128}


def costs_of(dynamic, budget, fixed=0.9):
    """Costs of 1,000,000 tokens with these shares of padding."""
    shares = {waste.FIXED: fixed, waste.DYNAMIC: dynamic, waste.GROUPED: 0.2, waste.BUDGET: budget, waste.PACKED: 0}
    cost = waste.Cost("", batches=100, largest_batch=0, tokens=1_000_000, computed=0, scores=0)
    return [dataclasses.replace(cost, name=name, computed=round(1e6 / (1 - share))) for name, share in shares.items()]


PADDED, BUDGETED, PACKED = costs_of(0.01, 0), costs_of(0.72, 0.01), costs_of(0.72, 0.2)


@pytest.mark.parametrize(
    ("dynamic", "budget", "choice", "lines"),
    [
        (LITTLE_PADDING - 0.001, 0, "Pad to the longest row of each batch: only 4.9%", "DataCollatorWithPadding"),
        (LITTLE_PADDING + 0.001, 0.03, "Choose batches by a token budget: padding falls from 5.1% to 3.0%", "Budget"),
        (0.72, ENOUGH_WITH_BUDGET - 0.001, "Choose batches by a token budget: padding falls from 72.0%", "Budget"),
        (0.72, ENOUGH_WITH_BUDGET + 0.001, "Pack rows without padding: a token budget still leaves 10.1%", "Packed"),
    ],
)
def test_advice_and_code_follow_the_numbers(dynamic, budget, choice, lines):
    costs = costs_of(dynamic, budget)
    said = advise(costs)
    assert 2 <= len(said) <= 3
    assert said[0].startswith(choice)
    assert all(lines in "".join(code(costs, **SIZES)[purpose]) for purpose in ("A DataLoader", "Trainer"))


def test_advice_warns_of_one_length_only_where_it_costs():
    assert "10.0 times" in advise(costs_of(0.01, 0.01))[-1]
    assert len(advise(costs_of(0.01, 0.01, fixed=0.02))) == 2


def test_the_code_has_the_options_of_the_plan():
    def line(**options):
        return code(BUDGETED, **(SIZES | options))["A DataLoader"][0].partition("(dataset), ")[2]

    assert line() == "max_tokens=128)"
    assert line(pad_to_multiple_of=8, longest=128) == "max_tokens=128, multiple_of=8)"
    assert line(pad_to_multiple_of=48, longest=97) == 'max_tokens=128, multiple_of=48, overlong="alone")'
    # A batch has as many packs as four rows have tokens: 10,000 are in each of 100 batches.
    assert "DataLoader(packs, batch_size=156, " in code(PACKED, **SIZES)["A DataLoader"][-1]
    assert "batch_size=1, " in code(PACKED, **SIZES | {"max_length": 10**6})["A DataLoader"][-1]


@pytest.mark.parametrize("pad_to_multiple_of", [None, 8])
@pytest.mark.parametrize("costs", [PADDED, BUDGETED, PACKED], ids=["padded", "budget", "packed"])
def test_the_code_runs(costs, pad_to_multiple_of, tmp_path, monkeypatch):
    """Each block in names of its own, and one step of each Trainer."""
    import datasets
    from torch.utils.data import DataLoader
    from transformers import BertConfig, BertForSequenceClassification, BertTokenizerFast, Trainer, TrainingArguments

    monkeypatch.chdir(tmp_path)
    lengths = [3 + n % 61 for n in range(40)]
    dataset = datasets.Dataset.from_dict({"input_ids": [[5] * n for n in lengths], "label": [0] * 40})
    (tmp_path / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a"]))
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 8}
    for purpose, lines in code(costs, **SIZES, pad_to_multiple_of=pad_to_multiple_of, longest=63).items():
        needed = {name for name in ("BatchedDataset", "PackedDataset") if name in "".join(lines)}
        if needed - HOMES.keys():
            pytest.skip(f"quadrat has no {needed.pop()} yet")
        names = {
            "quadrat": quadrat,
            "DataLoader": DataLoader,
            "Trainer": Trainer,
            "TrainingArguments": lambda *given, **options: TrainingArguments(
                *given, **options, max_steps=1, use_cpu=True, report_to="none", disable_tqdm=True
            ),
            "dataset": dataset,
            "tokenizer": BertTokenizerFast(str(tmp_path / "vocab.txt")),
            "model": BertForSequenceClassification(BertConfig(vocab_size=6, **sizes)),
        }
        undo = quadrat.patch_transformers
        patched = []
        monkeypatch.setattr(quadrat, "patch_transformers", lambda undo=undo, patched=patched: patched.append(undo()))
        try:
            exec("\n".join(lines), names)
            if purpose.startswith("A DataLoader"):
                batches = list(names["loader"])
                assert sum(int((batch["input_ids"] == 5).sum()) for batch in batches) == sum(lengths)
            else:
                batch = next(iter(names["trainer"].get_train_dataloader()))
                assert batch["input_ids"].shape[-1] % (pad_to_multiple_of or 1) == 0
                if costs is not PACKED:  # BERT's attention is not told where rows begin
                    names["trainer"].train()
        finally:
            for one in patched:
                one.undo()
        monkeypatch.setattr(quadrat, "patch_transformers", undo)
    assert patched == [] or costs is BUDGETED


def test_the_setting_that_groups_is_one_of_the_installed_transformers():
    from transformers import TrainingArguments

    assert grouping().partition("=")[0] in {field.name for field in dataclasses.fields(TrainingArguments)}
