"""The report of `quadrat run`: the sums of the events of all processes, and the sentences that follow from them."""

import json
import math
import os
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from quadrat.cli.batch_sizes import UNLABELLED
from quadrat.cli.command import complain, listed
from quadrat.cli.costs import LITTLE
from quadrat.cli.events import Totals, add_events, read_events

TRAINING, EVALUATION, ELSEWHERE = "training", "evaluation", "outside of loops"
MAX_TOKENS, REMOVE_PADDING = "--max-tokens", "--remove-padding"
_TIMES = "waited", "fetching", "collating", "model", "fetching_in_workers", "collating_in_workers"
_SUMS = (
    "seconds",
    "computed",
    "tokens",
    "rows",
    "stored",
    "unlabelled",
    "sized",
    "others",
    "unknown",
    "fell_back",
    "compared",
)
_SHORT = 1.0  # seconds of a loop that say nothing of a longer one
_BUSY = 0.25  # the share of a run's time on processors for which it waits, from which on its times mislead


def write_report(settings: dict[str, Any]) -> None:
    """Makes the report of a run that has ended, and removes what its processes wrote."""
    folder = Path(settings["folder"])
    totals, processes = read_events(folder)
    shutil.rmtree(folder, ignore_errors=True)
    report = report_of(totals, elapsed=time.time() - settings["started"]) | {"processes": processes}
    if not settings["quiet"] and sys.stderr is not None:
        for line in sentences(report, settings):
            complain(f"quadrat run: {line}")
    if settings["report"] is not None:
        try:
            Path(settings["report"]).write_text(json.dumps(report, indent=2) + "\n")
        except OSError as error:
            if sys.stderr is not None:
                complain(f"quadrat run: {settings['report']} is not written: {error.strerror or error}")


def report_of(totals: Totals, *, elapsed: float) -> dict[str, Any]:
    """The report on the sums of all events. elapsed: the seconds of the run."""
    kinds = _kinds(totals)
    whole: Totals = {}
    add_events(whole, ({**sums, "of": "run"} for sums in kinds.values()))
    run = whole.get("run", {})
    report: dict[str, Any] = {name: run.get(name, 0) for name in _SUMS}
    report["compiled"] = run.get("made", 0) - report["fell_back"] - report["compared"]
    report["causes"] = dict(run.get("causes", {}))
    report["padding"] = 1 - report["tokens"] / report["computed"] if report["computed"] else 0.0
    report["padded_to"] = max(map(int, run.get("widths", {})), default=0)
    workers = [sums["made"] for of, sums in totals.items() if of.startswith("worker ") and sums.get("made")]
    report["workers"], report["batches_of_workers"] = len(workers), sum(workers)
    report["models"] = {kind: _of_models(sums) for kind, sums in kinds.items() if "model_calls" in sums}
    report["remarks"] = [*totals.get("remarks", {}).get("texts", ())]
    report["options"] = dict(totals.get("options", {}).get("met", {}))
    processors = totals.get("processors", {"cpu": 0.0, "delayed": 0.0})
    waited = processors["delayed"] / max(processors["delayed"] + processors["cpu"], 1e-9)
    report["busy"] = waited if waited > _BUSY else 0.0
    report["elapsed"] = elapsed
    report["loops"] = {
        kind: _loop(kinds[kind], elapsed) for kind in (TRAINING, EVALUATION) if kinds.get(kind, {}).get("batches")
    }
    return report


def _kinds(totals: Totals) -> Totals:
    """The sums of loops by kind, with those of their workers."""
    kind_of = {
        of: TRAINING if sums.get("steps") else EVALUATION for of, sums in totals.items() if of.startswith("loop ")
    }
    loop_of = {pid: of for of in kind_of for pid in totals[of].get("worker_pids", ())}
    kinds: Totals = {}
    for of, sums in totals.items():
        role, _, pid = of.partition(" ")
        if role not in ("loop", "process", "worker"):
            continue
        loop = loop_of.get(pid) if role == "worker" else of
        suffix = "_in_workers" * (role == "worker")
        event = {name + suffix * (name in ("fetching", "collating")): value for name, value in sums.items()}
        event["of"] = kind_of.get(loop or "", ELSEWHERE)
        add_events(kinds, [{**event, "processes": [pid.split()[1]] if role == "loop" and sums.get("batches") else []}])
    return kinds


def _of_models(sums: dict[str, Any]) -> dict[str, int]:
    """The calls of models, their tokens with padding and without, and what was left out of them."""
    names = {"calls": "model_calls", "called_with": "model_computed", "tokens": "model_tokens"}
    return {name: sums.get(value, 0) for name, value in {**names, "removed": "removed", "shared": "shared"}.items()}


def _loop(sums: dict[str, Any], elapsed: float) -> dict[str, Any]:
    """Of the loops of a kind: times, numbers, and the seconds that options and workers are expected to save."""
    loop: dict[str, Any] = {name: sums.get(name, 0.0) for name in _TIMES}
    loop |= {"batches": sums["batches"], "steps": sums.get("steps", 0), "processes": len(sums["processes"])}
    loop["num_workers"] = max(map(int, sums["num_workers"]))
    loop["share"] = loop["waited"] / max(_seconds(loop), 1e-9)
    loop["share_of_run"] = loop["waited"] / max(elapsed * loop["processes"], 1e-9)
    calls = _of_models(sums)
    padding = max(0, calls["called_with"] - calls["tokens"] - calls["removed"]) / max(calls["called_with"], 1)
    loop["gains"] = {"remove_padding": padding * loop["model"], **gains_of_workers(loop)}
    return loop


def _seconds(loop: dict[str, Any]) -> float:
    return float(loop["waited"] + loop["model"])


def _most_workers() -> int:
    """As many as there are processors for them."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def gains_of_workers(loop: dict[str, Any]) -> dict[str, float]:
    """The number of workers that is expected to save most seconds, and these."""
    model, workers = loop["model"], int(loop["num_workers"])
    name = "_in_workers" * (workers > 0)  # where batches are made
    making = loop[f"fetching{name}"] + loop[f"collating{name}"]
    enough = max(1, math.ceil(making / max(model, 1e-9)))
    others = {number: max(model, making / number) for number in (min(enough, _most_workers()),) if number > workers}
    others |= {0: model + making} if workers else {}
    best = min(others, key=lambda number: others[number], default=workers)
    saved = max(0.0, _seconds(loop) - others.get(best, math.inf))
    return {"num_workers": best if saved else workers, "workers": saved}


def _number(number: int, singular: str, plural: str) -> str:
    return f"{number:,} {singular if number == 1 else plural}"


def _batches(number: int) -> str:
    return _number(number, "batch", "batches")


def sentences(report: dict[str, Any], settings: dict[str, Any]) -> Iterator[str]:
    """The report in lines."""
    compiled, fell_back, compared = report["compiled"], report["fell_back"], report["compared"]
    if compiled + fell_back + compared:
        parts = [f"{compiled:,} compiled", f"{fell_back:,} fell back", *[f"{compared:,} compared"] * (compared > 0)]
        total = _batches(compiled + fell_back + compared)
        yield f"{total}: {', '.join(parts)}; {report['seconds']:.3g} s in collators"
    else:
        yield "no batch was made by a collator that quadrat replaces"
    for cause, batches in report["causes"].items():
        yield f"  {_number(batches, 'time', 'times')} {cause}"
    if report["unlabelled"]:
        yield f"{_batches(report['unlabelled'])} had {UNLABELLED}"
    yield from _of_padding(report, settings)
    workers = _number(report["workers"], "worker process", "worker processes")
    unknown = 0 if report["models"] else report["unknown"]
    notes = {
        f"{_batches(report['batches_of_workers'])} came from {workers}": report["workers"],
        f"{_batches(report['others'])} of loaders came from other collators: their padding counts": report["others"],
        f"{_batches(unknown)} without attention mask: how much of them is padding is not known": unknown,
        f"the machine was busy: this run waited for a processor for {report['busy']:.0%} of the time for which it "
        "could have computed. The times below are longer than on a quiet machine": report["loops"] and report["busy"],
    }
    yield from (text for text, number in notes.items() if number)
    for kind, loop in report["loops"].items():
        yield from loop_sentences(kind, loop)
    if settings["max_tokens"] is not None and MAX_TOKENS not in report["options"]:
        yield f"{MAX_TOKENS} did nothing: this script trained no Trainer and made no DataLoader that shuffles"
    if settings["remove_padding"] and REMOVE_PADDING not in report["options"]:
        yield f"{REMOVE_PADDING} did nothing: no model of transformers was called with padding in its attention mask"
    if settings["misplaced"]:
        yield f"the script was given {listed(settings['misplaced'])}: options of quadrat run go before the script"


def _of_padding(report: dict[str, Any], settings: dict[str, Any]) -> Iterator[str]:
    """The sentences on padding, and on what leaves it out."""
    models = report["models"]
    called_with, tokens, removed, shared = (
        sum(calls[name] for calls in models.values()) for name in ("called_with", "tokens", "removed", "shared")
    )
    if called_with:
        where = {TRAINING: "in training", EVALUATION: "in evaluation", ELSEWHERE: ELSEWHERE}
        places = [f"{calls['called_with']:,} tokens {where[kind]}" for kind, calls in models.items()]
        text = f"models were called with {' and '.join(places)}"
        text += f", of which {1 - tokens / called_with:.1%} were padding"
        if settings["remove_padding"]:
            text += f"; {REMOVE_PADDING} left out {removed:,} tokens"
            text += f", and {shared:,} that rows share" if shared else ""
        elif 1 - tokens / called_with > LITTLE:
            text += f"; {REMOVE_PADDING} leaves them out"
        yield text
    if report["computed"] > 2 * called_with:  # loaders make some batches that no model gets
        yield f"{report['padding']:.1%} of the {report['computed']:,} tokens in batches were padding"
    if report["stored"] > LITTLE * report["computed"]:
        yield (
            f"{report['stored'] / report['computed']:.1%} of the tokens in batches were padding in every row of their "
            f"batch: rows are stored padded to {report['padded_to']:,} (map without padding), or the collator pads "
            "them to it"
        )


def loop_sentences(kind: str, loop: dict[str, Any]) -> Iterator[str]:
    """The report on the loops of a kind, and what helps."""
    workers, gains, seconds = loop["num_workers"], loop["gains"], _seconds(loop)
    name = "_in_workers" * (workers > 0)
    fetching, collating = loop[f"fetching{name}"], loop[f"collating{name}"]
    yield (
        f"{kind} waited {loop['waited']:.3g} s for {_batches(loop['batches'])}, {loop['share']:.1%} of its loop, "
        f"{loop['share_of_run']:.1%} of the run; fetching rows took {fetching:.3g} s, collating {collating:.3g} s"
        f"{' in its workers' * (workers > 0)}, and the model {loop['model']:.3g} s"
    )
    if seconds < _SHORT:
        return
    options = {
        f"{REMOVE_PADDING} saves about": gains["remove_padding"],
        f"num_workers={gains['num_workers']} instead of {workers} saves up to": gains["workers"],
    }
    helps = [f"{option} {saved:.3g} s" for option, saved in options.items() if saved > LITTLE * seconds]
    if helps:
        yield f"of these {seconds:.3g} s of {kind}, {', and '.join(helps)}"
    elif loop["share"] > LITTLE:
        slow = "fetching rows" if fetching > collating else "collating"
        yield f"{kind} is bound by {slow}: only doing that faster helps, by {loop['share']:.1%} at most"
    else:
        most = (gains["remove_padding"] + gains["workers"]) / seconds
        yield f"{kind} is bound by the model: less padding and other workers save {most:.1%} at most"
