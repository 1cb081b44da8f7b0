"""What a run waited for: `quadrat run` finds delays that a script has, where they are, and changes nothing else."""

import json
from itertools import chain

import pytest
import torch

from quadrat.cli.batch_sizes import Sizes, sizes_of
from quadrat.cli.report import gains, loop_sentences, merged, show
from quadrat.cli.waits import Waits
from support.command import PYTHON, ran, ran_alike, reported

# Rows, batches and steps that take a known time; what they took is printed as JSON.
LOOPS = """
import json, os, sys, time
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset

workers, start = int(sys.argv[1]), sys.argv[2]

def sleep(seconds):
    before = time.perf_counter()
    time.sleep(seconds)
    return time.perf_counter() - before

class Rows(Dataset):
    def __init__(self, delay):
        self.delay = delay
    def __len__(self):
        return 16
    def __getitem__(self, row):
        return row, sleep(self.delay)

class Stream(IterableDataset):
    def __iter__(self):
        return (Rows(0.004)[row] for row in range(16))

class Collate:
    def __init__(self, delay):
        self.delay = delay
    def __call__(self, rows):
        fetched = sum(seconds for _, seconds in rows)
        return {"rows": torch.tensor([row for row, _ in rows]), "fetched": fetched, "collated": sleep(self.delay)}

def loader(data, collating, **options):
    if workers:
        options |= {"num_workers": workers, "multiprocessing_context": start}
    return DataLoader(data, batch_size=4, collate_fn=Collate(collating), **options)

def loop(batches, delay, step=lambda: None):
    took = {"fetching": 0.0, "collating": 0.0, "model": 0.0}
    for batch in batches:
        order.append(batch["rows"].tolist())
        took["fetching"] += batch["fetched"]
        took["collating"] += batch["collated"]
        took["model"] += sleep(delay)
        step()
    return took

if __name__ == "__main__":
    torch.manual_seed(3)
    order, weight = [], torch.nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([weight], 0.1)
    def step():
        weight.sum().backward()
        optimizer.step()
    took = {
        "training": loop(loader(Rows(0.01), 0.005, shuffle=True), 0.03, step),
        "evaluation": loop(loader(Rows(0.002), 0.06), 0.02),
    }
    for _ in zip(range(2), loader(Rows(0.002), 0.06)):  # a loop that is left
        weight.grad = None
    step()
    if not workers:
        loop(loader(Stream(), 0.002), 0.001)
    print(json.dumps([order, torch.initial_seed(), torch.rand(3).tolist()]))
    with open("took.json", "w") as file:
        json.dump(took, file)
"""


@pytest.mark.slow
@pytest.mark.parametrize(("workers", "start"), [("0", ""), ("2", "fork"), ("1", "spawn")])
def test_delays_are_found_where_they_are(tmp_path, workers, start):
    found, report = reported(tmp_path, LOOPS, workers, start)
    took = json.loads((tmp_path / "took.json").read_text())
    expected = ran(tmp_path, PYTHON, "script.py", workers, start)
    assert expected.stdout == found.stdout  # the same rows in the same order, the same random numbers
    assert report["loops"]["training"]["batches"] == 4
    assert report["loops"]["evaluation"]["batches"] == 6 + 4 * (workers == "0")
    for kind, loop in report["loops"].items():
        name = "_in_workers" if workers != "0" else ""
        parts = {"fetching": loop[f"fetching{name}"], "collating": loop[f"collating{name}"], "model": loop["model"]}
        for part, seconds in parts.items():
            assert seconds >= 0.95 * took[kind][part]
        assert (parts["fetching"] > parts["collating"]) == (kind == "training")
        assert (loop["for_workers"] == loop["waited"]) == (workers != "0")
        assert loop["num_workers"] == int(workers)
        assert f"quadrat run: {kind} waited {loop['waited']:.3g} s" in found.stderr
        if workers == "0":
            made = loop["fetching"] + loop["collating"]
            assert made <= loop["waited"] < 1.5 * made
        if kind == "training":
            assert parts["fetching"] < 1.5 * took[kind]["fetching"]
            assert parts["collating"] < took[kind]["collating"] + took[kind]["fetching"] / 2


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
    said = ran_alike(tmp_path, "script.py", where, workers, reports=True).stderr
    assert any(one in said for one in ("Error: 'mine'", "Error: mine", "KeyboardInterrupt", "Length of Iterable"))


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
    found, report = reported(tmp_path, TRAINER, accumulated)
    assert list(report["loops"]) == ["training", "evaluation"]
    for loop in report["loops"].values():
        assert loop["batches"] == 6
        assert loop["model"] >= 6 * 0.03
        assert loop["fetching"] >= 24 * 0.005
        assert loop["share"] == pytest.approx(loop["waited"] / (loop["waited"] + loop["model"]))
    # The batches of the collator, which quadrat does not know, count: 12 rows of 78 tokens, twice in evaluation.
    assert report["others"] == report["sized"] == 12
    assert report["tokens"] == 4 * 78
    assert "12 batches of loaders were made by other collators: their padding counts" in found.stderr
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
    found, report = reported(tmp_path, UNKNOWN)
    assert (report["unknown"], report["computed"], report["sized"]) == (2, 0, 0)
    assert "2 batches have no attention mask: how much of them is padding is not known" in found.stderr


def batch_of(lengths: list[int], width: int, prefix: str = "") -> dict[str, torch.Tensor]:
    mask = (torch.arange(width) < torch.tensor(lengths)[..., None]).long()
    return {f"{prefix}input_ids": mask.clone(), f"{prefix}attention_mask": mask}


def test_tokens_of_batches():
    assert sizes_of(batch_of([3, 5], 5), None) == Sizes(10, 8, [3, 5], 0, 5)
    assert sizes_of(batch_of([3, 5], 8), None) == Sizes(16, 8, [3, 5], 6, 8)
    assert sizes_of(batch_of([3, 5], 8), 4) == Sizes(16, 8, [4, 8], 0, 8)
    choices = batch_of([[3, 1], [2, 2]], 4)  # each with as many tokens as the longest
    assert sizes_of(choices, None) == Sizes(16, 8, [6, 4], 4, 4)
    both = {**batch_of([3, 1], 4, "chosen_"), **batch_of([2, 2], 2, "rejected_"), **batch_of([9], 9, "decoder_")}
    assert sizes_of(both, None) == Sizes(12, 8, [5, 3], 2, 6)
    assert sizes_of({"input_ids": torch.ones(2, 3)}, None).is_unknown
    assert not sizes_of({"input_ids": torch.ones(1, 3)}, None).is_unknown
    assert not sizes_of({"pixel_values": torch.ones(2, 3)}, None).is_unknown
    assert sizes_of([1, 2], None) == Sizes()


def test_pairs_count_as_pairs():
    pytest.importorskip("trl", reason="TRL is not installed")
    from quadrat.trl.dpo import DataCollatorForPreference

    collator = DataCollatorForPreference(pad_token_id=0)
    pairs = [
        {"prompt_ids": [1, 2], "chosen_ids": [3], "rejected_ids": [4, 5, 6]},
        {"prompt_ids": [1], "chosen_ids": [2, 3], "rejected_ids": [4]},
    ]
    batch = collator(pairs)
    longest = [2 * max(len(one["prompt_ids"] + one[name]) for name in ("chosen_ids", "rejected_ids")) for one in pairs]
    found = sizes_of(batch, None, collator._completions)
    assert list(found.lengths) == longest
    assert found.computed == batch["input_ids"].numel()
    assert found.tokens == int(batch["attention_mask"].sum())


def loop_of(waited: float = 0.0, model: float = 0.0, workers: int = 0, **others: float) -> dict[str, float]:
    made = {"fetching": waited, "collating": 0.0} if not workers else {"fetching": 0.0, "collating": 0.0}
    in_workers = {"fetching_in_workers": 0.0, "collating_in_workers": 0.0}
    more = {"options": ["--max-tokens 9"], "not_estimated": []}
    return {"waited": waited, "model": model, "num_workers": workers, **made, **in_workers, **more, **others}


def test_what_helps(monkeypatch):
    monkeypatch.setattr("quadrat.cli.report._most_workers", lambda: 4)
    model = gains(loop_of(0.01, 9.99), 0.0)
    assert model["fewer_tokens"] == 0
    assert model["workers"] == pytest.approx(0.01)
    assert gains(loop_of(0, 10.0), 0.3)["fewer_tokens"] == pytest.approx(3)
    waits = gains(loop_of(6.0, 4.0), 0.0)  # two workers make batches as fast as the model takes them
    assert (waits["num_workers"], waits["workers"]) == (2, pytest.approx(6))
    few = gains(loop_of(6.0, 4.0, 1, fetching_in_workers=10.0), 0.0)
    assert (few["num_workers"], few["workers"]) == (3, pytest.approx(6))
    bound = gains(loop_of(36.0, 4.0, 1, fetching_in_workers=40.0), 0.0)  # by the processors
    assert (bound["num_workers"], bound["workers"]) == (4, pytest.approx(30))
    many = gains(loop_of(3.0, 4.0, 2, collating_in_workers=0.5), 0.0)
    assert (many["num_workers"], many["workers"]) == (0, pytest.approx(2.5))
    enough = gains(loop_of(0.1, 4.0, 2, fetching_in_workers=7.0), 0.0)
    assert (enough["num_workers"], enough["workers"]) == (2, 0)


@pytest.mark.parametrize(
    ("loop", "fewer", "said"),
    [
        (loop_of(0.01, 9.99), 0.02, "training is bound by the model: other batches or workers save 2.1% at most"),
        (loop_of(0.01, 9.99), 0.3, "of these 10 s of training, --max-tokens 9 saves about 3 s"),
        (loop_of(5.0, 5.0), 0.0, "of these 10 s of training, num_workers=1 instead of 0 up to 5 s"),
        (loop_of(9.9, 0.1, 4, fetching_in_workers=39.6), 0.0, "training is bound by fetching rows"),
        (
            loop_of(0.01, 9.99, not_estimated=["it is a stream"]),
            0.0,
            "training is bound by the model: other workers save 0.1% at most; what other batches would save is not "
            "estimated: it is a stream",
        ),
    ],
)
def test_sentences_of_what_helps(monkeypatch, loop, fewer, said):
    monkeypatch.setattr("quadrat.cli.report._most_workers", lambda: 4)
    made = {**loop, "batches": 3, "share": loop["waited"] / 10, "share_of_run": 0.5, "gains": gains(loop, fewer)}
    _, advice = loop_sentences({"training": made})
    assert said in advice


def test_short_loops_are_reported_without_advice():
    loop = loop_of(0.2, 0.3)
    made = {**loop, "batches": 3, "share": 0.4, "share_of_run": 0.5, "gains": gains(loop, 0.9)}
    assert len([*loop_sentences({"training": made})]) == 1


def test_loops_of_processes_are_added():
    """Those of workers to the kind of loop that they made batches for."""
    sums = {"batches": 2, "waited": 1.5, "for_workers": 1.5, "model": 3.0}
    group = {"sums": sums, "num_workers": {2: 1}}
    trained = {"training --max-tokens": group, "training quadrat.BatchedStream": group}
    main = {"pid": 1, "made": {}, "groups": trained, "group_of_workers": dict.fromkeys("78", "training --max-tokens")}
    other = {"pid": 2, "made": {}, "groups": {"training --max-tokens": group, "evaluation x": {}}}
    made = {"sums": {"fetching": 0.5, "collating": 0.25}}
    workers = [{"pid": pid, "made": made, "groups": {}, "group_of_workers": {}} for pid in (7, 8, 9)]
    loops = merged([{}, main, *workers, other], 1.0)["loops"]
    assert [*loops] == ["training"]
    assert loops["training"] == loops["training"] | {
        **{"batches": 6, "waited": 4.5, "fetching": 0, "collating": 0, "for_workers": 4.5, "model": 9.0},
        **{"processes": 2, "num_workers": 2, "fetching_in_workers": 1.0, "collating_in_workers": 0.5},
        "share": pytest.approx(1 / 3),
    }


def test_savings_are_of_cpu_time_where_the_machine_was_busy(capsys):
    """From a quarter on, and not of the seconds for which the run waited for a processor."""
    counts = {"sums": {"computed": 360, "sized": 2, "batches": 2, "model": 9.0}, "rows": {2: 2}, "num_workers": {0: 1}}
    counts |= {"lengths": {10: 2, 90: 2}, "passes": {"": 1}}
    for delayed, busy in ((1.0, 0), (6.0, 0.5)):
        process = {"groups": {"training --max-tokens": counts}, "cpu_seconds": 6.0, "delayed": delayed}
        total = merged([process], 9.0)
        (promise,) = total["promises"]
        assert (total["busy"], promise["loop"], promise["computed"]) == (busy, "training", 360)
        saved = promise["computed"] - promise["computed_with"]
        gain = 9 * saved / 360 * (1 - busy)
        assert total["loops"]["training"]["gains"]["fewer_tokens"] == pytest.approx(gain)
        assert gain > 1
        show(total, [])
        said = capsys.readouterr().err
        assert ("the machine was busy: this run waited for a processor for 50%" in said) == bool(busy)
        assert f"of these 9 s of training, {promise['option']} saves about {gain:.3g} s" in said


class Iterator:
    """Of a loader."""


def test_many_passes_are_added_up():
    waits, kept = Waits(), [Iterator() for _ in range(7)]
    for iterator in chain(kept, (Iterator() for _ in range(3_000)), kept):
        waits.stop(waits.start(iterator))
    assert len(waits.passes) <= 1_001
    (found,) = waits.as_dict()["groups"].values()
    assert found["sums"]["batches"] == 3_014
    assert (found,) == tuple(waits.as_dict()["groups"].values())
