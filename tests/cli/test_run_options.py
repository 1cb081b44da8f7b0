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
    padded = [row + [0] * (max(map(len, ids)) - len(row)) for row in ids]
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
    def _get_train_sampler(self, *args):
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
    "usual": "4 steps an epoch, as before",
    "other columns": "batches are as before: no column 'input_ids'",
    "tuples": "batches are as before: row 0 of column 'input_ids' is a tuple",
    "stream": "batches are as before: Stream cannot be indexed by row",
    "own sampler": "batches are as before: OwnSampler chooses rows in its own way",
    "own loader": "batches are as before: OwnLoader chooses rows in its own way",
    "wrapped": "batches are as before: Wrapped chooses rows in its own way",
}


@pytest.mark.slow
def test_max_tokens_acts_or_says_why_not(tmp_path):
    (tmp_path / "script.py").write_text(TRAINERS)
    done = ran(tmp_path, [*RUN, "--max-tokens", "auto"], "script.py", stderr=subprocess.STDOUT)
    assert done.returncode == 0, done.stdout
    *parts, end = re.split(r"^trained\n", done.stdout, flags=re.MULTILINE)
    assert len(parts) == 7
    for part in parts:
        name, *lines = part.splitlines()
        remarks = [line for line in lines if line.startswith("quadrat run:")]
        assert len(remarks) == (name in SAID), part
        assert all(SAID[name] in line for line in remarks), part
    assert "did nothing" not in end


@pytest.mark.parametrize("script", ["print(5)", "import torch, transformers.modeling_utils\nprint(5)"])
def test_says_what_does_nothing(tmp_path, script):
    """Also of a script that makes no batch."""
    (tmp_path / "script.py").write_text(script)
    done = ran(tmp_path, [*RUN, "--max-tokens", "9", "--remove-padding"], "script.py", "--max-tokens=9", "--mine")
    assert (done.returncode, done.stdout) == (0, "5\n")
    assert done.stderr.splitlines() == [
        "quadrat run: no batch was made by a collator that quadrat replaces",
        "quadrat run: --max-tokens did nothing: this script trained no Trainer and made no DataLoader that shuffles",
        "quadrat run: --remove-padding did nothing: no model of transformers was called with padding in its attention "
        "mask",
        "quadrat run: the script was given --max-tokens=9: options of quadrat run go before the script",
    ]
    assert not ran(tmp_path, [*RUN, "--quiet", "--max-tokens", "9"], "script.py").stderr


def test_options_are_passed_on(monkeypatch):
    started = []
    monkeypatch.setattr(os, "execve", lambda *passed: started.extend(passed))
    main(["run", "--max-tokens", "64", "script.py"])
    assert started[1][-1] == "script.py"
    settings = json.loads(started[2]["QUADRAT_RUN"])
    assert (settings["max_tokens"], settings["remove_padding"]) == (64, False)


@pytest.mark.parametrize("place", ["missing/report.json", ""])
def test_a_report_that_cannot_be_written_is_refused_before_the_script(tmp_path, place):
    (tmp_path / "script.py").write_text("print('trained')")
    done = ran(tmp_path, [*RUN, "--report", str(tmp_path / place)], "script.py")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"quadrat run: --report {tmp_path / place}: ")
    assert done.stderr.count("\n") == 1


@pytest.mark.slow
def test_a_report_that_cannot_be_written_at_the_end_is_shown(tmp_path):
    (tmp_path / "reports").mkdir()
    (tmp_path / "script.py").write_text(
        "import os\nfrom transformers import DefaultDataCollator\nDefaultDataCollator()([{'input_ids': [1]}])\n"
        "os.rmdir('reports')"
    )
    done = ran(tmp_path, [*RUN, "--report", "reports/report.json"], "script.py")
    assert done.returncode == 0
    shown, lost = done.stderr.splitlines()
    assert shown.startswith("quadrat run: 1 batch: 1 compiled, 0 fell back")
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
    done, report = reported(tmp_path, UNLABELLED, str(workers))
    assert report["unlabelled"] == 14
    assert done.stderr.count("a batch has no label left") == 1
    assert "14 batches had no label left" in done.stderr
