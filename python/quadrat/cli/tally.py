"""Counts of a process of `quadrat run`, the folder where it leaves them, and the report of all."""

from __future__ import annotations

import contextlib
import copy
import json
import math
import multiprocessing
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import quadrat
from quadrat.cli.batch_sizes import COUNTED, Sizes, is_unlabelled, sentences, sizes_of
from quadrat.cli.command import complain, listed
from quadrat.cli.online import online_sentences
from quadrat.cli.run import VARIABLE, Options
from quadrat.cli.waits import EVALUATION, TRAINING, Waits, gains, loop_sentences, merged_loops
from quadrat.cli.waste import LITTLE_PADDING, padded, token_budget
from quadrat.support.counts import counting

_EVERY = 1.0  # seconds between the numbers that a worker leaves
_FEWEST = 64  # rows of the batches that a budget is compared with
_NUMBERS = ("seconds", "computed", "tokens", "cut", "trimmed", "unlabelled", "sized", "others", "unknown")
_UNLABELLED = "no label left (all are -100), so that the loss is nan or 0"
_COUNTERS = ("lengths", "widths", "options", "elsewhere")
OPTIONS = Options(**json.loads(os.environ[VARIABLE]))


class Tally(Waits):
    """Counts of the batches of this process, too; a fork begins anew, in the same object."""

    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.Lock()
        self.seconds, self.computed, self.tokens = 0.0, 0, 0
        self.cut = self.trimmed = 0  # tokens that trim would cut, and that it cut
        self.unlabelled = 0  # batches whose labels are all ignored
        self.sized = 0  # batches whose tokens are counted
        self.others = 0  # of these, those of loaders that no collator of quadrat made
        self.unknown = 0  # batches with tokens, of which nothing says how many are padding
        self.lengths: Counter[int] = Counter()
        self.widths: Counter[int] = Counter()  # of batches that trim would cut
        self.options: Counter[str] = Counter()  # how many Trainers, loaders and pipelines each of them met
        self.elsewhere: Counter[str] = Counter()  # batches, rows and tokens of pipelines, and of tokenizers in loops
        self.said: set[str] = set()  # of loaders
        self.written = 0.0  # when numbers were left last
        self.is_done = False

    def add(self, seconds: float, batch: Any, collator: Any) -> None:
        """Adds a batch that a collator made in this time."""
        options = getattr(collator, "pad_to_multiple_of", None), getattr(collator, "_quadrat_completions", 1)
        sizes, unlabelled = sizes_of(batch, *options), is_unlabelled(batch)
        self.own.computed, self.own.is_counted = sizes.computed, True
        with self.lock:
            self.seconds += seconds
            self.unlabelled += unlabelled
            self._add(sizes)
        if unlabelled:
            say_once("unlabelled", f"a batch has {_UNLABELLED}: look at what truncates rows and ignores labels")
        self._leave_at_times()

    def add_of_loader(self, fetcher: Any, batch: Any) -> None:
        """Adds a batch of a loader, unless a collator has added it, or a pipeline does."""
        is_of_pipeline = getattr(vars(fetcher).get("collate_fn"), "__module__", "") == "transformers.pipelines.base"
        if counting() and not self.own.is_counted and not is_of_pipeline:
            with contextlib.suppress(Exception):  # a batch of any kind
                sizes = sizes_of(getattr(batch, "noted", batch), None)  # a batch of a stream comes with its place
                with self.lock:
                    self._add(sizes)
                    self.others += sizes.computed > 0
        self._leave_at_times()

    def _add(self, sizes: Sizes) -> None:
        self.computed += sizes.computed
        self.tokens += sizes.tokens
        self.cut += sizes.cut
        self.sized += sizes.computed > 0
        self.unknown += sizes.is_unknown
        if sizes.cut:
            self.widths[sizes.width] += 1
        self.lengths.update(sizes.lengths)

    def _leave_at_times(self) -> None:
        """A worker may end without notice."""
        if os.getpid() != OPTIONS.process and time.monotonic() > self.written + _EVERY:
            with contextlib.suppress(OSError):
                _leave()

    def add_elsewhere(self, where: str, sizes: Sizes) -> None:
        """Adds a batch that neither a collator nor a loader made."""
        found = (1, len(sizes.lengths), sizes.computed, sizes.tokens)
        if counting():
            with self.lock:
                self.unknown += sizes.is_unknown
                if sizes.computed:
                    names = (f"{where} {name}" for name in COUNTED)
                    self.elsewhere.update(dict(zip(names, found, strict=True)))

    def recount(self, batch: Any) -> None:
        """Takes back the tokens of this thread's last batch, which was trimmed or filled since, for those it has."""
        shape = batch["attention_mask" if "attention_mask" in batch else "input_ids"].shape
        less = self.own.computed - math.prod(shape)
        with self.lock:
            self.computed -= less
            self.cut -= max(less, 0)
            self.trimmed += max(less, 0)
        self.own.computed -= less

    def as_dict(self) -> dict[str, Any]:
        """All of it, for JSON."""
        with self.lock:
            counts = {name: copy.copy(getattr(self, name)) for name in (*_NUMBERS, *_COUNTERS)}
        made = quadrat.stats()
        batches = made.compiled + made.fell_back
        is_worker = multiprocessing.parent_process() is not None
        return {
            **made._asdict(),
            **counts,
            **super().as_dict(),
            "workers": int(is_worker and batches > 0),
            "batches_of_workers": batches * is_worker,
        }


TALLY = Tally()


def say(text: str) -> None:
    """Writes a line to standard error."""
    if not OPTIONS.quiet and sys.stderr is not None:
        complain(f"quadrat run: {text}")


def say_once(name: str, text: str) -> None:
    """Says what no process of this run has said under this name."""
    with contextlib.suppress(OSError):
        (_folder() / name).touch(exist_ok=False)
        say(text)


def _folder() -> Path:
    """Where the processes of this run leave what others read. Raises OSError."""
    folder = Path(OPTIONS.folder)
    folder.mkdir(mode=0o700, exist_ok=True)
    if hasattr(os, "getuid") and folder.stat().st_uid != os.getuid():
        raise PermissionError(f"{folder} belongs to somebody else")
    return folder


def _leave() -> None:
    """Leaves the numbers of this process in a file. Raises OSError."""
    folder, own = _folder(), os.getpid()
    TALLY.written = time.monotonic()
    name = f"main-{own}.json" if own == OPTIONS.process else f"{own}.json"
    part = folder / f"{name}.part"
    part.write_text(json.dumps(TALLY.as_dict()))
    part.rename(folder / name)


def finish() -> None:
    """Leaves the numbers of this process, once."""
    if not TALLY.is_done:
        TALLY.is_done = True
        with contextlib.suppress(OSError):
            _leave()


def merged(processes: Sequence[dict[str, Any]], elapsed: float) -> dict[str, Any]:
    """The numbers of all processes added up, and what a token budget would compute."""
    loops = merged_loops(processes)
    total: dict[str, Any] = dict.fromkeys(("processes", "compiled", "fell_back", *_NUMBERS), 0)
    total |= {name: Counter() for name in ("causes", "options", "elsewhere", "lengths", "widths")}
    for one in processes:
        total["processes"] += 1
        for name, value in one.items():
            if isinstance(value, dict):
                total[name].update(value)
            else:
                total[name] = total.get(name, 0) + value
    lengths = {int(tokens): rows for tokens, rows in total.pop("lengths").items()}
    total["padded_to"] = max(map(int, total.pop("widths")), default=0)
    total["rows"] = sum(lengths.values())
    total["padding"] = 1 - total["tokens"] / total["computed"] if total["computed"] else 0.0
    total["with_max_tokens"] = _with_budget(lengths, total)
    total["elapsed"] = elapsed
    for kind, loop in loops.items():
        loop["share_of_run"] = loop["waited"] / max(elapsed * loop["processes"], 1e-9)
        loop["gains"] = gains(loop, _fewer_tokens(total) * (kind == next(iter(loops))))
    total["loops"] = loops
    return total


def _fewer_tokens(total: dict[str, Any]) -> float:
    """The share of the tokens that a token budget saves."""
    other = total["with_max_tokens"]
    if other is None or total["options"]["--max-tokens"]:
        return 0.0
    return max(0.0, 1 - float(other["computed"] / total["computed"]))


def _with_budget(lengths: dict[int, int], total: dict[str, Any]) -> dict[str, int] | None:
    """A token budget for these rows, and the tokens that batches of it have, padding included."""
    from quadrat.batching.token_budget import usual_max_tokens  # which imports torch, and this module waits for that

    if total["rows"] < _FEWEST or not total["padding"]:
        return None
    rows = np.repeat(np.array(list(lengths), np.int64), np.array(list(lengths.values()), np.int64))
    budget = usual_max_tokens(rows, max(1, round(len(rows) / total["sized"])))
    return {"max_tokens": budget, "computed": padded(rows, token_budget(rows, budget)).computed}


def show(total: dict[str, Any], of_trainer: Sequence[str]) -> None:
    """Writes the report to standard error; of the options that change what a Trainer does, those that met none."""
    compiled, fallen = total["compiled"], total["fell_back"]
    lines = ["no batch was made by a collator that quadrat replaces"]
    if compiled + fallen:
        made = f"{compiled + fallen:,} batches, {compiled:,} of them compiled, and {fallen:,} fell back"
        lines = [f"{made}; {total['seconds']:.3g} s in collators"]
    lines += [f"  {batches:,} times {cause}" for cause, batches in total["causes"].items()]
    budget, padding = _padding(total, trims="--trim" in of_trainer)
    workers, others, unknown = (total.get(name, 0) for name in ("batches_of_workers", "others", "unknown"))
    notes = {
        f"{total['unlabelled']:,} of them had {_UNLABELLED}": total["unlabelled"],
        **dict.fromkeys(padding, True),
        f"--trim cut {total['trimmed']:,} tokens of padding": total["options"]["--trim"]
        and (total["trimmed"] or not total["elsewhere"]["online passes"]),
        f"{workers:,} batches came from {total.get('workers')} worker processes": workers,
        f"{others:,} batches of loaders were made by other collators: their padding counts": others,
        f"{unknown:,} batches have no attention mask: how much of them is padding is not known": unknown,
    }
    lines += [text for text, number in notes.items() if number]
    lines += loop_sentences(total["loops"], {TRAINING: budget, EVALUATION: "quadrat.batching.by_length"})
    lines += sentences(total["elsewhere"], of_trainer)
    lines += online_sentences(total["elsewhere"], of_trainer)
    unmet = [name for name in of_trainer if not total["options"][name]]
    if "--inference" in unmet:
        unmet.remove("--inference")
        lines.append("--inference did nothing: no pipeline and no encode was given several texts")
    if unmet:
        lines.append(f"{listed(unmet)} did nothing: this script used no Trainer and made no DataLoader that shuffles")
    for line in lines:
        complain(f"quadrat run: {line}")


def _padding(total: dict[str, Any], *, trims: bool) -> tuple[str, list[str]]:
    """The options that would have fewer tokens computed, and the sentences on padding."""
    stored = total["cut"] > LITTLE_PADDING * total["computed"]
    tokens = (total["with_max_tokens"] or {}).get("max_tokens")
    budget = "--trim " * (stored and not trims) + f"--max-tokens {tokens}"
    if 2 * total["others"] > total["sized"]:
        budget = f"quadrat.batch_by_tokens(..., max_tokens={tokens})"
    lines = []
    if total["computed"]:
        text = f"{total['padding']:.1%} of {total['computed']:,} tokens computed were padding"
        fewer = _fewer_tokens(total)
        if fewer > LITTLE_PADDING:
            text += f"; {budget} would compute {fewer:.0%} fewer tokens"
        lines.append(text)
        if stored and not trims:
            lines.append(
                f"{total['cut'] / total['computed']:.1%} were padding in every row of their batch: rows are stored "
                f"padded to {total['padded_to']:,} (map without padding), or the collator pads them to it; --trim cuts "
                "this from a Trainer's training batches"
            )
    return budget, lines
