"""The report of `quadrat run`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from quadrat.cli.command import complain, listed
from quadrat.cli.inference import sentences
from quadrat.cli.waits import EVALUATION, TRAINING, gains, loop_sentences, merged_loops
from quadrat.cli.waste import LITTLE_PADDING, padded, token_budget

# Rows of the batches that a budget is compared with.
_FEWEST = 64
NUMBERS = ("seconds", "computed", "tokens", "cut", "trimmed", "unlabelled", "sized", "others", "unknown")
UNLABELLED = "no label left (all are -100), so that the loss is nan or 0"


def merged(processes: Sequence[dict[str, Any]], elapsed: float) -> dict[str, Any]:
    """The numbers of all processes added up, and what a token budget would compute."""
    loops = merged_loops(processes)
    total: dict[str, Any] = dict.fromkeys(("processes", "compiled", "fell_back", *NUMBERS), 0)
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
        f"{total['unlabelled']:,} of them had {UNLABELLED}": total["unlabelled"],
        **dict.fromkeys(padding, True),
        f"--trim cut {total['trimmed']:,} tokens of padding": total["options"]["--trim"],
        f"{workers:,} batches came from {total.get('workers')} worker processes": workers,
        f"{others:,} batches of loaders were made by other collators: their padding counts": others,
        f"{unknown:,} batches have no attention mask: how much of them is padding is not known": unknown,
    }
    lines += [text for text, number in notes.items() if number]
    lines += loop_sentences(total["loops"], {TRAINING: budget, EVALUATION: "quadrat.batching.by_length"})
    lines += sentences(total["elsewhere"], of_trainer)
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
