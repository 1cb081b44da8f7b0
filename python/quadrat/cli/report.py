"""The report of `quadrat run`: the numbers of all processes, and the sentences that follow from them."""

import math
import os
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from quadrat.cli.batch_sizes import UNLABELLED, sentences
from quadrat.cli.command import complain, listed
from quadrat.cli.promises import Promise, promised
from quadrat.cli.waits import Counts, add_counts, new_counts
from quadrat.cli.waste import LITTLE_PADDING

_TIMES = "waited", "fetching", "collating", "for_workers", "model", "fetching_in_workers", "collating_in_workers"
_TOKENS = "seconds", "computed", "tokens", "cut", "unlabelled", "sized", "others", "unknown"
# A saving below this share of a loop is not worth a change.
_LITTLE = 0.05
_SHORT = 1.0  # seconds of a loop that say nothing of a longer one
_BUSY = 0.25  # the share of a run's time on processors for which it waits, from which on its times mislead


def merged(processes: Sequence[dict[str, Any]], elapsed: float) -> dict[str, Any]:
    """The numbers of all processes added up, and what options would save."""
    groups, whole = _groups(processes), new_counts()
    total: dict[str, Any] = dict.fromkeys(("processes", "compiled", "fell_back", "cpu_seconds", "delayed"), 0)
    total |= {name: Counter() for name in ("causes", "options", "elsewhere")}
    for one in processes:
        total["processes"] += 1
        for name, value in one.items():
            if isinstance(value, dict):
                total[name].update(value)
            else:
                total[name] = total.get(name, 0) + value
    for counts in groups.values():
        add_counts(whole, counts)
    total |= {name: whole["sums"][name] for name in _TOKENS}
    total["padded_to"] = max(map(int, whole["widths"]), default=0)
    total["rows"] = sum(whole["lengths"].values())
    total["padding"] = 1 - total["tokens"] / total["computed"] if total["computed"] else 0.0
    total["elapsed"] = elapsed
    waited = total["delayed"] / max(total["delayed"] + total["cpu_seconds"], 1e-9)
    total["busy"] = waited if waited > _BUSY else 0.0
    found = {}
    for group, counts in groups.items():
        loop, _, option = group.partition(" ")
        found[group] = promised(loop, option, counts)
    total["promises"] = [one._asdict() for one in found.values() if isinstance(one, Promise)]
    total["loops"] = _loops(groups, found, total)
    return total


def _groups(processes: Sequence[dict[str, Any]]) -> dict[str, Counts]:
    """The numbers of the batches of each kind of loop and option, with those of the workers that made them."""
    groups: dict[str, Counts] = defaultdict(new_counts)
    group_of = {pid: group for one in processes for pid, group in one.pop("group_of_workers", {}).items()}
    for number, one in enumerate(processes):
        made, group = one.pop("made", {}), group_of.get(str(one.pop("pid", None)))
        if group is not None:
            sums = made.get("sums", {})
            made["sums"] = {name + "_in_workers" * (name in {"fetching", "collating"}): sums[name] for name in sums}
        add_counts(groups[group or " quadrat.batching.by_length"], made)
        for name, counts in one.pop("groups", {}).items():
            add_counts(groups[name], {**counts, "processes": {number: 1}})
    return groups


def _loops(groups: dict[str, Counts], found: dict[str, Promise | str], total: dict[str, Any]) -> dict[str, Any]:
    """The loops by kind, training first, with the seconds that options and workers are expected to save."""
    loops: dict[str, Any] = {}
    for kind in sorted({group.partition(" ")[0] for group in groups} - {""}, reverse=True):
        counts, names = new_counts(), [group for group in groups if group.startswith(kind)]
        for name in names:
            add_counts(counts, groups[name])
        sums = counts["sums"]
        if not sums["batches"]:
            continue
        times = {name: sums[name] for name in _TIMES}
        loop: dict[str, Any] = {**times, "batches": sums["batches"], "processes": len(counts["processes"])}
        loop["num_workers"] = max(map(int, counts["num_workers"]))
        loop["share"] = loop["waited"] / max(_seconds(loop), 1e-9)
        loop["share_of_run"] = loop["waited"] / max(total["elapsed"] * loop["processes"], 1e-9)
        promises = [found[name] for name in names]
        saved = sum(one.computed - one.computed_with for one in promises if isinstance(one, Promise))
        loop["options"] = [one.option for one in promises if isinstance(one, Promise)]
        loop["not_estimated"] = [one for one in promises if isinstance(one, str)]
        of_cpu = {name: seconds * (1 - total["busy"]) for name, seconds in times.items()}
        loop["gains"] = gains({**loop, **of_cpu}, max(0.0, saved / max(sums["computed"], 1)))
        loops[kind] = loop
    return loops


def _seconds(loop: dict[str, Any]) -> float:
    return float(loop["waited"] + loop["model"])


def _most_workers() -> int:
    """As many as there are processors for them."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def gains(loop: dict[str, Any], fewer_tokens: float) -> dict[str, float]:
    """The seconds that fewer tokens and another number of workers are expected to save, and that number."""
    model, workers = loop["model"], int(loop["num_workers"])
    name = "_in_workers" * (workers > 0)  # where batches are made
    making = loop[f"fetching{name}"] + loop[f"collating{name}"]
    enough = max(1, math.ceil(making / max(model, 1e-9)))
    others = {number: max(model, making / number) for number in (min(enough, _most_workers()),) if number > workers}
    others |= {0: model + making} if workers else {}
    best = min(others, key=lambda number: others[number], default=workers)
    saved = max(0.0, _seconds(loop) - others.get(best, math.inf))
    return {"fewer_tokens": fewer_tokens * model, "num_workers": best if saved else workers, "workers": saved}


def loop_sentences(loops: dict[str, Any]) -> Iterator[str]:
    """The report on loops, and what helps."""
    for kind, loop in loops.items():
        workers, gain, seconds = loop["num_workers"], loop["gains"], _seconds(loop)
        name = "_in_workers" * (workers > 0)
        fetching, collating = loop[f"fetching{name}"], loop[f"collating{name}"]
        yield (
            f"{kind} waited {loop['waited']:.3g} s for {loop['batches']:,} batches, {loop['share']:.1%} of its loop, "
            f"{loop['share_of_run']:.1%} of the run; fetching rows took {fetching:.3g} s, collating {collating:.3g} s"
            f"{' in its workers' * (workers > 0)}, and the model {loop['model']:.3g} s"
        )
        if seconds < _SHORT:
            continue
        helps = []
        if gain["fewer_tokens"] > _LITTLE * seconds:
            helps.append(f"{' and '.join(loop['options'])} saves about {gain['fewer_tokens']:.3g} s")
        if gain["workers"] > _LITTLE * seconds:
            helps.append(f"num_workers={gain['num_workers']} instead of {workers} up to {gain['workers']:.3g} s")
        if helps:
            yield f"of these {seconds:.3g} s of {kind}, {' and '.join(helps)}"
        elif loop["share"] > _LITTLE:
            slow = "fetching rows" if fetching > collating else "collating"
            yield f"{kind} is bound by {slow}: only doing that faster helps, by {loop['share']:.1%} at most"
        elif loop["not_estimated"]:
            why = " and ".join(dict.fromkeys(loop["not_estimated"]))
            most = f"other workers save {gain['workers'] / seconds:.1%} at most"
            yield f"{kind} is bound by the model: {most}; what other batches would save is not estimated: {why}"
        else:
            most = (gain["fewer_tokens"] + gain["workers"]) / seconds
            yield f"{kind} is bound by the model: other batches or workers save {most:.1%} at most"


def show(total: dict[str, Any], of_trainer: Sequence[str], misplaced: Sequence[str] = ()) -> None:
    """Writes the report to standard error; of the options that change what a Trainer does, those that met none."""
    compiled, fallen = total["compiled"], total["fell_back"]
    lines = ["no batch was made by a collator that quadrat replaces"]
    if compiled + fallen:
        made = f"{compiled + fallen:,} batches, {compiled:,} of them compiled, and {fallen:,} fell back"
        lines = [f"{made}; {total['seconds']:.3g} s in collators"]
    lines += [f"  {batches:,} times {cause}" for cause, batches in total["causes"].items()]
    workers, others, unknown = (total.get(name, 0) for name in ("batches_of_workers", "others", "unknown"))
    notes = {
        f"{total['unlabelled']:,} of them had {UNLABELLED}": total["unlabelled"],
        **dict.fromkeys(_padding(total), True),
        f"{workers:,} batches came from {total.get('workers')} worker processes": workers,
        f"{others:,} batches of loaders were made by other collators: their padding counts": others,
        f"{unknown:,} batches have no attention mask: how much of them is padding is not known": unknown,
        f"the machine was busy: this run waited for a processor for {total['busy']:.0%} of the time for which it could "
        "have computed. Times below are longer than on a quiet machine, and savings are of CPU time": total["loops"]
        and total["busy"],
    }
    lines += [text for text, number in notes.items() if number]
    lines += loop_sentences(total["loops"])
    lines += sentences(total["elsewhere"])
    unmet = [name for name in of_trainer if not total["options"][name]]
    if unmet:
        lines.append(f"{listed(unmet)} did nothing: this script used no Trainer and made no DataLoader that shuffles")
    if misplaced:
        lines.append(f"the script was given {listed(misplaced)}: options of quadrat run go before the script")
    for line in lines:
        complain(f"quadrat run: {line}")


def _padding(total: dict[str, Any]) -> Iterator[str]:
    """The sentences on padding, and on the options that would have fewer tokens computed."""
    if total["computed"]:
        promises = [Promise(**one) for one in total["promises"]]
        helps = [str(one) for one in promises if one.share > LITTLE_PADDING]
        text = f"{total['padding']:.1%} of {total['computed']:,} tokens computed were padding"
        yield "; ".join([text, ", and ".join(helps)][: 1 + bool(helps)])
        if total["cut"] > LITTLE_PADDING * total["computed"]:
            yield (
                f"{total['cut'] / total['computed']:.1%} were padding in every row of their batch: rows are stored "
                f"padded to {total['padded_to']:,} (map without padding), or the collator pads them to it"
            )
