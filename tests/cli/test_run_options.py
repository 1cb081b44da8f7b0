"""Each option of `quadrat run` acts, or a line says that it does not and why; it never ends a script."""

import json
import os
import re
import subprocess

import pytest

from quadrat.__main__ import main
from support.command import RUN, ran, reported

# Trainers of several kinds, one after the other, each of which trains and evaluates.
TRAINERS = """
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, SequentialSampler
from transformers import BertForSequenceClassification, Trainer
from support.trainer import arguments, tiny

model = tiny(BertForSequenceClassification)
rows = [{"input_ids": [1] * (1 + 7 * i % 30), "labels": i % 2} for i in range(16)]
columns = [{"prompt_ids": row["input_ids"], "labels": row["labels"]} for row in rows]
pairs = [(row["input_ids"], row["labels"]) for row in rows]

def collate(features):
    if isinstance(features[0], tuple):
        features = [{"input_ids": ids, "labels": label} for ids, label in features]
    ids = [row.get("prompt_ids", row.get("input_ids")) for row in features]
    padded = [one + [0] * (max(map(len, ids)) - len(one)) for one in ids]
    return {"input_ids": torch.tensor(padded), "labels": torch.tensor([row["labels"] for row in features])}

class Items(Dataset):
    def __getitem__(self, row):
        return rows[row]
    def __len__(self):
        return len(rows)

class Stream(IterableDataset):
    def __iter__(self):
        return iter(rows)

class OwnSampler(Trainer):
    def _get_train_sampler(self, *given):
        return SequentialSampler(self.train_dataset)

class OwnLoader(Trainer):
    def get_train_dataloader(self):
        return DataLoader(self.train_dataset, batch_size=4, collate_fn=self.data_collator)
    get_eval_dataloader = lambda self, data=None: self.get_train_dataloader()

class Wrapped(Trainer):
    def get_train_dataloader(self):
        return super().get_train_dataloader()

def train(name, cls, data):
    args = arguments("out", max_steps=2, logging_strategy="no", remove_unused_columns=False)
    print(name, flush=True)
    trainer = cls(model, args, train_dataset=data, eval_dataset=data, data_collator=collate)
    trainer.train()
    trainer.evaluate()
    print("trained", flush=True)

train("usual", Trainer, rows)
train("other columns", Trainer, columns)
train("tuples", Trainer, pairs)
train("stream", Trainer, Stream())
train("own sampler", OwnSampler, Items())
train("own loader", OwnLoader, Items())
train("wrapped", Wrapped, Items())
"""

# What is said of a kind of Trainer, where an option does not act.
SAID = {
    "--group-by-length": {
        "other columns": "rows are not grouped by length: Can only automatically infer lengths for datasets",
        "tuples": "rows are not grouped by length: Can only automatically infer lengths for datasets",
        "stream": "rows are not grouped by length: Trainer reads Stream in its own order",
        "own sampler": "rows are not grouped by length: OwnSampler has a sampler of its own, SequentialSampler",
        "own loader": "rows are not grouped by length: OwnLoader reads Items in its own order",
    },
    "--max-tokens": {
        "usual": "steps an epoch instead of 4",
        "other columns": "batches are as before: no column 'input_ids'",
        "tuples": "batches are as before: row 0 of column 'input_ids' is a tuple",
        "stream": "batches are as before: Stream cannot be indexed by row",
        "own sampler": "batches are as before: OwnSampler chooses rows in its own way",
        "own loader": "batches are as before: OwnLoader chooses rows in its own way",
        "wrapped": "batches are as before: Wrapped chooses rows in its own way",
    },
}


@pytest.mark.slow
@pytest.mark.parametrize("option", SAID)
def test_acts_or_says_why_not(tmp_path, option):
    (tmp_path / "script.py").write_text(TRAINERS)
    options = [option, "auto"] if option == "--max-tokens" else [option]
    found = ran(tmp_path, [*RUN, *options], "script.py", stderr=subprocess.STDOUT)
    assert found.returncode == 0, found.stdout
    *parts, end = re.split(r"^trained\n", found.stdout, flags=re.MULTILINE)
    assert len(parts) == 7
    for part in parts:
        name, *lines = part.splitlines()
        said = [line for line in lines if line.startswith("quadrat run:")]
        assert len(said) == (name in SAID[option]), part
        assert all(SAID[option][name] in line for line in said), part
    assert "did nothing" not in end


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--max-tokens", "9"], "--max-tokens did nothing: this script used no Trainer"),
        (["--attention", "auto"], "--attention does nothing without --max-tokens"),
        (["--max-tokens", "9", "--group-by-length"], "--group-by-length does nothing with --max-tokens"),
        (["--quiet", "--attention", "auto"], ""),
    ],
)
def test_says_what_does_nothing(tmp_path, options, said):
    (tmp_path / "script.py").write_text("print(5)")
    found = ran(tmp_path, [*RUN, *options], "script.py")
    assert (found.returncode, found.stdout) == (0, "5\n")
    assert said in found.stderr
    assert found.stderr.count("\n") == len({said, ""}) - 1 + ("--group-by-length" in options)


@pytest.mark.slow
def test_says_what_does_nothing_where_batches_are_made(tmp_path):
    code = "from transformers import DefaultDataCollator\nDefaultDataCollator()([{'input_ids': [1]}])"
    (tmp_path / "script.py").write_text(code)
    found = ran(tmp_path, [*RUN, "--group-by-length"], "script.py", "--max-tokens=9", "--mine")
    assert "the script was given --max-tokens: options of quadrat run go before the script" in found.stderr
    assert "1 batches, 1 of them compiled" in found.stderr
    assert "--group-by-length did nothing: this script used no Trainer" in found.stderr


@pytest.mark.parametrize(
    ("given", "attention"), [([], None), (["--attention", "auto"], "auto"), (["--attention", "512"], 512)]
)
def test_options_are_passed_on(monkeypatch, given, attention):
    started = []
    monkeypatch.setattr(os, "execve", lambda *passed: started.extend(passed))
    main(["run", "--max-tokens", "64", *given, "script.py"])
    assert started[1][-1] == "script.py"
    told = json.loads(started[2]["QUADRAT_RUN"])
    assert (told["max_tokens"], told["attention"]) == (64, attention)


@pytest.mark.parametrize(("option", "value"), [("compare", "compare"), ("compile", "1")])
def test_what_becomes_of_unknown_code(tmp_path, option, value):
    code = "import os; print(os.environ['QUADRAT_UNTESTED'])"
    found = ran(tmp_path, [*RUN, "--quiet", "--untested", option, "-c"], code)
    assert (found.returncode, found.stdout) == (0, f"{value}\n")


@pytest.mark.parametrize("place", ["missing/report.json", ""])
def test_a_report_that_cannot_be_written_is_refused_before_the_script(tmp_path, place):
    (tmp_path / "script.py").write_text("print('trained')")
    found = ran(tmp_path, [*RUN, "--report", str(tmp_path / place)], "script.py")
    assert (found.returncode, found.stdout) == (2, "")
    assert found.stderr.startswith(f"quadrat run: --report {tmp_path / place}: ")
    assert found.stderr.count("\n") == 1


@pytest.mark.slow
def test_a_report_that_cannot_be_written_at_the_end_is_shown(tmp_path):
    (tmp_path / "reports").mkdir()
    (tmp_path / "script.py").write_text(
        "import os\nfrom transformers import DefaultDataCollator\nDefaultDataCollator()([{'input_ids': [1]}])\n"
        "os.rmdir('reports')"
    )
    found = ran(tmp_path, [*RUN, "--report", "reports/report.json"], "script.py")
    assert found.returncode == 0
    shown, lost = found.stderr.splitlines()
    assert shown.startswith("quadrat run: 1 batches, 1 of them compiled")
    assert lost == f"quadrat run: {tmp_path}/reports/report.json is not written: No such file or directory"


UNLABELLED = """
import sys, torch, transformers
from torch.utils.data import DataLoader
if __name__ == "__main__":
    label, rows = transformers.DefaultDataCollator(), []
    for labels in ([-100, -100], [-100, 5], [], [-100]):
        for values in (labels, torch.tensor(labels, dtype=torch.bfloat16), torch.tensor(labels)):
            rows.append({"x": 1, "labels": values})
    rows += [{"x": 1, "label": -100}, {"x": 1, "label": 0}, {"x": 1}]
    for _ in range(2):
        assert len(list(DataLoader(rows, collate_fn=label, num_workers=int(sys.argv[1])))) == 15
"""


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 2])
def test_batches_without_a_label_are_counted(tmp_path, workers):
    """In numbers of each kind; of those with another label, or without rows, nothing is said."""
    found, report = reported(tmp_path, UNLABELLED, str(workers))
    assert report["unlabelled"] == 14
    assert found.stderr.count("a batch has no label left") == 1
    assert "14 of them had no label left" in found.stderr
