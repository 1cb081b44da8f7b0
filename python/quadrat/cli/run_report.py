"""The report of `quadrat run`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from quadrat.batching.token_budget import usual_max_tokens
from quadrat.cli.command import complain, listed
from quadrat.cli.inference import sentences
from quadrat.cli.waste import LITTLE_PADDING, padded, token_budget

# Rows of the batches that a budget is compared with.
_FEWEST = 64
UNLABELLED = "no label left (all are -100), so that the loss is nan or 0"


def merged(processes: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """The numbers of all processes added up, and what a token budget would compute."""
    names = ("processes", "compiled", "fell_back", "computed", "cut", "trimmed", "unlabelled")
    total: dict[str, Any] = dict.fromkeys(names, 0)
    total |= {name: Counter() for name in ("causes", "options", "elsewhere", "lengths", "widths")}
    for one in processes:
        total["processes"] += 1
        for name in ("causes", "options", "elsewhere"):
            total[name].update(one.pop(name, {}))
        for name in ("lengths", "widths"):
            total[name].update({int(tokens): number for tokens, number in one.pop(name, {}).items()})
        for name, value in one.items():
            total[name] = total.get(name, 0) + value
    lengths = total.pop("lengths")
    total["padded_to"] = max(total.pop("widths"), default=0)
    total["rows"] = sum(lengths.values())
    total["padding"] = 1 - total["tokens"] / total["computed"] if total["computed"] else 0.0
    total["with_max_tokens"] = _with_budget(lengths, total)
    return total


def _with_budget(lengths: Counter[int], total: dict[str, Any]) -> dict[str, int] | None:
    """A token budget for these rows, and the tokens that batches of it have, padding included."""
    batches = total["compiled"] + total["fell_back"]
    if total["rows"] < _FEWEST or not batches or not total["padding"]:
        return None
    rows = np.repeat(np.array(list(lengths), np.int64), np.array(list(lengths.values()), np.int64))
    size = max(1, round(len(rows) / batches))
    budget = usual_max_tokens(rows, size)
    return {"max_tokens": budget, "computed": padded(rows, token_budget(rows, budget)).computed}


def show(total: dict[str, Any], of_trainer: Sequence[str]) -> None:
    """Writes the report to standard error; of the options that change what a Trainer does, those that met none."""
    compiled, fallen = total["compiled"], total["fell_back"]
    lines = ["no batch was made by a collator that quadrat replaces"]
    if compiled + fallen:
        made = f"{compiled + fallen:,} batches, {compiled:,} of them compiled, and {fallen:,} fell back"
        lines = [f"{made}; {total['seconds']:.3g} s in collators"]
    lines += [f"  {batches:,} times {cause}" for cause, batches in total["causes"].items()]
    if total["unlabelled"]:
        lines.append(f"{total['unlabelled']:,} of them had {UNLABELLED}")
    trims = "--trim" in of_trainer
    stored = total["cut"] > LITTLE_PADDING * total["computed"]
    if total["computed"]:
        text = f"{total['padding']:.1%} of {total['computed']:,} tokens computed were padding"
        other = total["with_max_tokens"]
        if "--max-tokens" not in of_trainer and other is not None and other["computed"] < 0.95 * total["computed"]:
            less = 1 - other["computed"] / total["computed"]
            option = "--trim " * (stored and not trims) + f"--max-tokens {other['max_tokens']}"
            text += f"; {option} would compute {less:.0%} fewer tokens"
        lines.append(text)
        if stored and not trims:
            lines.append(
                f"{total['cut'] / total['computed']:.1%} were padding in every row of their batch: rows are stored "
                f"padded to {total['padded_to']:,} (map without padding), or the collator pads them to it; --trim cuts "
                "this from a Trainer's training batches"
            )
    if total["options"]["--trim"]:
        lines.append(f"--trim cut {total['trimmed']:,} tokens of padding")
    if total.get("batches_of_workers"):
        lines.append(
            f"{total['batches_of_workers']:,} batches came from {total['workers']} worker processes: with rows in "
            "Arrow and no transform of your own, dataloader_num_workers=0 is the fastest"
        )
    lines += sentences(total["elsewhere"], of_trainer)
    unmet = [name for name in of_trainer if not total["options"][name]]
    if "--inference" in unmet:
        unmet.remove("--inference")
        lines.append("--inference did nothing: no pipeline and no encode was given several texts")
    if unmet:
        lines.append(f"{listed(unmet)} did nothing: this script used no Trainer and made no DataLoader that shuffles")
    for line in lines:
        complain(f"quadrat run: {line}")
