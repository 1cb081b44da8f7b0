"""The report of `quadrat run`: sums of events, and what it says of them."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from quadrat.cli.batch_sizes import sizes_of
from quadrat.cli.events import EventLog, add_events, read_events
from quadrat.cli.report import report_of, sentences
from quadrat.support.wrappers import wrap_method


def batch_of(lengths: list[int], width: int, prefix: str = "") -> dict[str, torch.Tensor]:
    mask = (torch.arange(width) < torch.tensor(lengths)[..., None]).long()
    return {f"{prefix}input_ids": mask.clone(), f"{prefix}attention_mask": mask}


def sizes(computed: int, tokens: int, rows: int, stored: int = 0, width: int = 0) -> dict[str, Any]:
    padded = {"stored": stored, "widths": [width]} if stored else {}
    return {"computed": computed, "tokens": tokens, "rows": rows, **padded}


def test_tokens_of_batches():
    assert sizes_of(batch_of([3, 5], 5)) == sizes(10, 8, 2)
    assert sizes_of(batch_of([3, 5], 8)) == sizes(16, 8, 2, 6, 8)
    assert sizes_of(batch_of([3, 5], 8), 4) == sizes(16, 8, 2)
    assert sizes_of(batch_of([[3, 1], [2, 2]], 4)) == sizes(16, 8, 2, 4, 4)
    both = {**batch_of([3, 1], 4, "chosen_"), **batch_of([2, 2], 2, "rejected_"), **batch_of([9], 9, "decoder_")}
    assert sizes_of(both) == sizes(12, 8, 2, 2, 6)
    flat = {"input_ids": torch.ones(1, 8), "cu_seq_lens_q": torch.tensor([0, 3, 6], dtype=torch.int32)}
    assert sizes_of(flat) == sizes(8, 6, 2)
    assert sizes_of({"input_ids": torch.ones(2, 3)}) == {"unknown": 1}
    assert sizes_of({"input_ids": torch.ones(1, 3)}) == sizes_of({"pixel_values": torch.ones(2, 3)}) == {}
    assert sizes_of([1, 2]) == {}


def loop_of(waited: float = 0.0, model: float = 0.0, workers: int = 0, **others: float) -> dict[str, Any]:
    """The sums of the events of a loop."""
    making = {} if workers else {"fetching": waited}
    return {"waited": waited, "model": model, "num_workers": {str(workers): 1}, "batches": 3, **making, **others}


def report_on(loop: dict[str, Any], kind: str = "training", elapsed: float = 20.0) -> dict[str, Any]:
    sums = {**loop, "worker_pids": {}, **({"steps": 3} if kind == "training" else {})}
    return report_of({"loop process 1 0": sums}, elapsed=elapsed)


def lines_of(report: dict[str, Any], **settings: Any) -> list[str]:
    usual = {"max_tokens": None, "remove_padding": False, "misplaced": []}
    return [*sentences(report, usual | settings)]


def test_which_workers_help(monkeypatch):
    monkeypatch.setattr("quadrat.cli.report._most_workers", lambda: 4)

    def gain(*sums: Any, **others: Any) -> Any:
        gains = report_on(loop_of(*sums, **others))["loops"]["training"]["gains"]
        return gains["num_workers"], pytest.approx(gains["workers"])

    assert gain(6.0, 4.0) == (2, 6)  # two workers make batches as fast as the model takes them
    assert gain(6.0, 4.0, 1, fetching_in_workers=10.0) == (3, 6)
    assert gain(36.0, 4.0, 1, fetching_in_workers=40.0) == (4, 30)  # as many as there are processors
    assert gain(3.0, 4.0, 2, collating_in_workers=0.5) == (0, 2.5)
    assert gain(0.1, 4.0, 2, fetching_in_workers=7.0) == (2, 0)


PADDED = {"model_calls": 3, "model_computed": 100, "model_tokens": 70}


@pytest.mark.parametrize(
    ("loop", "advice"),
    [
        (loop_of(0.01, 9.99), "training is bound by the model: less padding and other workers save 0.1% at most"),
        (loop_of(0.01, 9.99, **PADDED), "of these 10 s of training, --remove-padding saves about 3 s"),
        (loop_of(0.01, 9.99, **PADDED, removed=30), "training is bound by the model"),
        (loop_of(5.0, 5.0), "of these 10 s of training, num_workers=1 instead of 0 saves up to 5 s"),
        (loop_of(9.9, 0.1, 4, fetching_in_workers=39.6), "training is bound by fetching rows"),
    ],
)
def test_what_helps(monkeypatch, loop, advice):
    monkeypatch.setattr("quadrat.cli.report._most_workers", lambda: 4)
    assert advice in lines_of(report_on(loop))[-1]


def test_short_loops_are_reported_without_advice():
    assert lines_of(report_on(loop_of(0.2, 0.3, **PADDED)))[-1].startswith("training waited 0.2 s for 3 batches")


def test_events_of_processes_are_added():
    """Those of workers to the kind of loop that they made batches for; steps make a loop one of training."""
    loop = {"waited": 1.5, "batches": 2, "num_workers": [2], "worker_pids": [7, 8]}
    batch = {"made": 1, "fetching": 0.5, "collating": 0.25, "computed": 10, "tokens": 8, "sized": 1, "rows": 2}
    totals: dict[str, Any] = {}
    for pid in ("1", "2"):
        add_events(totals, [{"of": f"loop process {pid} 0", **loop}, {"of": f"loop process {pid} 0", "steps": 1}])
        add_events(totals, [{"of": f"loop process {pid} 1", **loop, "worker_pids": []}])
    add_events(totals, [{"of": f"worker {pid}", **batch} for pid in (7, 8, 9, 8)])
    again: dict[str, Any] = {}  # the sums are events, too
    add_events(again, json.loads(json.dumps([{"of": of, **sums} for of, sums in totals.items()])))
    assert again == totals
    report = report_of(totals, elapsed=1.0)
    training, evaluation = report["loops"].values()
    assert (training["batches"], training["steps"], training["processes"], training["num_workers"]) == (4, 2, 2, 2)
    assert (training["fetching"], training["fetching_in_workers"], training["collating_in_workers"]) == (0, 1.5, 0.75)
    assert (evaluation["batches"], evaluation["fetching_in_workers"]) == (4, 0)
    assert (report["compiled"], report["rows"], report["padding"]) == (4, 8, pytest.approx(0.2))
    assert (report["workers"], report["batches_of_workers"]) == (3, 4)


def test_many_events_are_added_up(tmp_path, monkeypatch):
    """In the file of a process; the report has all of them."""
    monkeypatch.setattr("quadrat.cli.events._MOST_LINES", 50)
    log = EventLog(str(tmp_path))
    for number in range(1_000):
        log.write(f"loop process 1 {number % 3}", batches=1, widths=[number % 7])
    log.finish()
    (file,) = tmp_path.glob("*.jsonl")
    assert len(file.read_text().splitlines()) < 120
    totals, processes = read_events(tmp_path)
    assert processes == 1
    assert sum(totals[f"loop process 1 {number}"]["batches"] for number in range(3)) == 1_000
    assert sum(sum(sums.get("widths", {}).values()) for sums in totals.values()) == 1_000


def test_the_machine_was_busy():
    """From a quarter on; times and savings are both of the clock."""
    for delayed, busy in ((1.0, 0), (6.0, 0.5)):
        totals = {"loop process 1 0": {**loop_of(0.01, 8.99, **PADDED), "steps": 3}}
        totals["processors"] = {"cpu": 6.0, "delayed": delayed}
        report = report_of(totals, elapsed=9.0)
        assert report["busy"] == busy
        lines = lines_of(report)
        assert any("waited for a processor for 50% of the time" in line for line in lines) == bool(busy)
        assert lines[-1] == "of these 9 s of training, --remove-padding saves about 2.7 s"


def test_numbers_have_their_words():
    report = report_of({"process 1": {"made": 1, "fell_back": 1, "seconds": 0.5, "causes": {"this": 1}}}, elapsed=1.0)
    assert lines_of(report) == ["1 batch: 0 compiled, 1 fell back; 0.5 s in collators", "  1 time this"]


def test_each_number_of_the_report_is_explained():
    page = (Path(__file__).parents[2] / "docs/how-to/run.md").read_text()
    loop = {**loop_of(1.0, 2.0, **PADDED), "steps": 1}
    report = report_of({"loop process 1 0": loop, "processors": {"cpu": 1.0, "delayed": 0.0}}, elapsed=1.0)
    assert "`processes`" in page
    names = {
        *report,
        *report["loops"]["training"],
        *report["loops"]["training"]["gains"],
        *report["models"]["training"],
    }
    assert {name for name in names if f"`{name}`" not in page} == set()


def test_tracebacks_are_those_of_without():
    original = Fails.fail
    try:
        wrap_method(Fails, "fail", print)
        with pytest.raises(KeyError) as raised:
            Fails().fail()
    finally:
        Fails.fail = original
    assert [entry.name for entry in raised.traceback] == ["test_tracebacks_are_those_of_without", "fail"]


class Fails:
    def fail(self):
        raise KeyError
