"""What a run waited for: `quadrat run` finds delays that a script has, where they are, and changes nothing else."""

import pytest

from support.command import PYTHON, ran, ran_alike, reported

# Rows, batches and steps that take a known time.
LOOPS = """
import sys, time
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset

workers, start = int(sys.argv[1]), sys.argv[2]

class Rows(Dataset):
    def __init__(self, delay):
        self.delay = delay
    def __len__(self):
        return 16
    def __getitem__(self, row):
        time.sleep(self.delay)
        return row

class Stream(IterableDataset):
    def __iter__(self):
        return (Rows(0.004)[row] for row in range(16))

class Collate:
    def __init__(self, delay):
        self.delay = delay
    def __call__(self, rows):
        time.sleep(self.delay)
        return torch.tensor(rows)

def loader(data, collating, **options):
    if workers:
        options |= {"num_workers": workers, "multiprocessing_context": start}
    return DataLoader(data, batch_size=4, collate_fn=Collate(collating), **options)

def loop(batches, delay, step=lambda: None):
    for batch in batches:
        order.append(batch.tolist())
        time.sleep(delay)
        step()

if __name__ == "__main__":
    torch.manual_seed(3)
    order, weight = [], torch.nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([weight], 0.1)
    def step():
        weight.sum().backward()
        optimizer.step()
    loop(loader(Rows(0.01), 0.005, shuffle=True), 0.03, step)
    loop(loader(Rows(0.002), 0.06), 0.02)
    for _ in zip(range(2), loader(Rows(0.002), 0.06)):  # a loop that is left
        weight.grad = None
    step()
    if not workers:
        loop(loader(Stream(), 0.002), 0.001)
    print(order, torch.initial_seed(), torch.rand(3).tolist())
"""
# The seconds that sixteen rows and four batches of each kind of loop sleep.
DELAYS = {
    "training": {"fetching": 0.16, "collating": 0.02, "model": 0.12},
    "evaluation": {"fetching": 0.032, "collating": 0.24, "model": 0.08},
}


@pytest.mark.slow
@pytest.mark.parametrize(("workers", "start"), [("0", ""), ("2", "fork"), ("1", "spawn")])
def test_delays_are_found_where_they_are(tmp_path, workers, start):
    done, report = reported(tmp_path, LOOPS, workers, start)
    expected = ran(tmp_path, PYTHON, "script.py", workers, start)
    assert expected.stdout == done.stdout  # the same rows in the same order, the same random numbers
    assert report["loops"]["training"]["batches"] == 4
    assert report["loops"]["evaluation"]["batches"] == 6 + 4 * (workers == "0")
    for kind, loop in report["loops"].items():
        name = "_in_workers" if workers != "0" else ""
        parts = {"fetching": loop[f"fetching{name}"], "collating": loop[f"collating{name}"], "model": loop["model"]}
        assert all(seconds >= DELAYS[kind][part] for part, seconds in parts.items()), parts
        assert loop["num_workers"] == int(workers)
        assert f"quadrat run: {kind} waited {loop['waited']:.3g} s" in done.stderr
        if workers == "0":
            assert loop["fetching"] + loop["collating"] <= loop["waited"]


ERRORS = """
import sys, torch, warnings
from torch.utils.data import DataLoader, IterableDataset

class Rows:
    def __len__(self):
        return 8
    def __getitem__(self, row):
        if where == "row" and row == 5:
            raise KeyError("mine")
        return row

class Short(IterableDataset):
    def __repr__(self):
        return "Short"
    def __len__(self):
        return 1
    def __iter__(self):
        return iter(range(8))

def collate(rows):
    if where == "collate" and 5 in rows:
        raise ValueError("mine")
    if where == "interrupt" and 5 in rows:
        raise KeyboardInterrupt
    return torch.tensor(rows)

class Nested:
    def __len__(self):
        return 2
    def __getitem__(self, row):
        return len([*DataLoader(Rows(), batch_size=4, collate_fn=collate)])

where, workers = sys.argv[1], int(sys.argv[2])
data = Short() if where == "warning" else Nested() if where == "nested" else Rows()
loader = DataLoader(data, batch_size=4, collate_fn=collate, num_workers=workers)
len(loader)
for batch in loader:
    print(batch.tolist(), flush=True)
where = "row"
for batch in DataLoader(data, batch_size=2, collate_fn=collate):
    print(batch.tolist(), flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize("workers", ["0", "1"])
@pytest.mark.parametrize("where", ["row", "collate", "interrupt", "warning", "nested"])
def test_errors_and_warnings_are_those_of_without(tmp_path, where, workers):
    if (where, workers) == ("interrupt", "1"):
        pytest.skip("a worker that is interrupted ends, and what torch says of that differs from run to run")
    (tmp_path / "script.py").write_text(ERRORS)
    stderr = ran_alike(tmp_path, "script.py", where, workers, reports=True).stderr
    assert any(error in stderr for error in ("Error: 'mine'", "Error: mine", "KeyboardInterrupt", "Length of Iterable"))


TRAINER = """
import sys, time
import torch
from transformers import Trainer, TrainingArguments

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(1))
    def forward(self, input_ids, attention_mask, labels=None):
        time.sleep(0.03)
        return {"loss": self.weight.sum() * input_ids.float().mean(), "logits": labels}

class Rows:
    def __len__(self):
        return 12
    def __getitem__(self, row):
        time.sleep(0.005)
        return {"input_ids": [1] * (1 + row), "labels": row % 2}

def collate(rows):
    width = max(len(row["input_ids"]) for row in rows)
    ids = torch.tensor([row["input_ids"] + [0] * (width - len(row["input_ids"])) for row in rows])
    labels = torch.tensor([row["labels"] for row in rows])
    return {"input_ids": ids, "attention_mask": (ids > 0).long(), "labels": labels}

args = TrainingArguments("out", per_device_train_batch_size=4, per_device_eval_batch_size=4, num_train_epochs=2,
    eval_strategy="epoch", report_to="none", disable_tqdm=True, save_strategy="no", use_cpu=True, logging_strategy="no",
    gradient_accumulation_steps=int(sys.argv[1]))
Trainer(Model(), args, train_dataset=Rows(), eval_dataset=Rows(), data_collator=collate).train()
"""


@pytest.mark.slow
@pytest.mark.parametrize("accumulated", ["1", "2"])
def test_training_and_evaluation_of_a_trainer(tmp_path, accumulated):
    """Its loaders, of accelerate, read a batch ahead; the model's time for the last one counts too."""
    done, report = reported(tmp_path, TRAINER, accumulated)
    assert list(report["loops"]) == ["training", "evaluation"]
    assert report["loops"]["training"]["steps"] == {"1": 6, "2": 4}[accumulated]
    for loop in report["loops"].values():
        assert loop["batches"] == 6
        assert loop["model"] >= 6 * 0.03
        assert loop["fetching"] >= 24 * 0.005
        assert loop["share"] == pytest.approx(loop["waited"] / (loop["waited"] + loop["model"]))
    # The batches of the collator, which quadrat does not know, count: 12 rows of 78 tokens, twice in evaluation.
    assert report["others"] == report["sized"] == 12
    assert report["tokens"] == 4 * 78
    assert "12 batches of loaders came from other collators: their padding counts" in done.stderr
    assert report["unknown"] == 0


UNKNOWN = """
import torch
from torch.utils.data import DataLoader
rows = [[1] * 3, [1] * 5, [1] * 2, [1] * 4]

def collate(rows):
    return {"input_ids": torch.nn.utils.rnn.pad_sequence([*map(torch.tensor, rows)], batch_first=True)}

assert len([*DataLoader(rows, batch_size=2, collate_fn=collate)]) == 2
"""


@pytest.mark.slow
def test_what_is_not_known_is_said(tmp_path):
    """Also in a script that imports torch alone."""
    done, report = reported(tmp_path, UNKNOWN)
    assert (report["unknown"], report["computed"], report["sized"]) == (2, 0, 0)
    assert "2 batches without attention mask: how much of them is padding is not known" in done.stderr
