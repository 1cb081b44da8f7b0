"""Which way of batching to choose, by what the ways cost."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from quadrat.cli.waste import BUDGET, DYNAMIC, FIXED, FLATTENED, GROUPED, Cost

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

# Up to this share of padding, nothing else is worth its trouble.
LITTLE_PADDING = 0.05
# Up to this share, rows grouped by length are good enough to need no attention that is told where rows begin.
ENOUGH_GROUPED = 0.10

PAD = "quadrat.DataCollatorWithPadding(tokenizer)"
FLATTEN = (
    "quadrat.DataCollatorWithFlattening(return_flash_attn_kwargs=True) with a model loaded with "
    'attn_implementation="flash_attention_2"'
)


# What collators pad with, where the tokenizer has nothing for it, by whether it has an end of sequence.
_PAD_TOKEN = {
    True: "set tokenizer.pad_token = tokenizer.eos_token",
    False: 'call tokenizer.add_special_tokens({"pad_token": "[PAD]"}) and '
    "model.resize_token_embeddings(len(tokenizer))",
}


def advise(costs: Sequence[Cost], tokenizer: PreTrainedTokenizerBase | None = None) -> list[str]:
    """Two or three sentences: what to choose, why, and the setting that gives it. Another where it cannot pad yet."""
    said = _by_costs(costs)
    if tokenizer is not None and tokenizer.pad_token is None:
        said.append(f"The tokenizer has no pad token: before padding, {_PAD_TOKEN[tokenizer.eos_token is not None]}.")
    return said


def _by_costs(costs: Sequence[Cost]) -> list[str]:
    ways = {cost.name: cost for cost in costs}
    fixed, dynamic, grouped, budget, flattened = (ways[name] for name in (FIXED, DYNAMIC, GROUPED, BUDGET, FLATTENED))
    if dynamic.padding <= LITTLE_PADDING:
        said = [
            f"Pad to the longest row of each batch: only {dynamic.padding:.1%} of the tokens computed are padding, and "
            "no other way can save more than that.",
            f"{PAD} does this.",
        ]
        if fixed.padding > LITTLE_PADDING:
            said.append(f"Padding all rows to one length would compute {fixed.factor:.1f} times their tokens.")
        return said
    group = f"{grouping()} and {PAD}"
    if grouped.padding <= ENOUGH_GROUPED:
        return [
            f"Group rows by length: padding falls from {dynamic.padding:.1%} to {grouped.padding:.1%}, and a pass "
            f"computes {1 - grouped.computed / dynamic.computed:.0%} fewer tokens than with shuffled batches, "
            "whatever the model.",
            f"Use {group}.",
            f"If the model's attention can be told where rows begin, the rest can be saved, too: {FLATTEN}.",
        ]
    return [
        f"Flatten the batches: rows grouped by length still leave {grouped.padding:.1%} padding, and a flattened pass "
        f"computes {1 - flattened.computed / grouped.computed:.0%} fewer tokens.",
        f"Use {FLATTEN}.",
        f"For a model without such attention: {group}, {grouped.padding:.1%} padding where shuffled batches have "
        f"{dynamic.padding:.1%}, and a token budget {budget.padding:.1%}.",
    ]


def grouping() -> str:
    """The setting of Trainer that groups rows by length, in the installed transformers, or else in the newest."""
    found = importlib.util.find_spec("transformers")
    if found is not None and found.origin is not None:
        source = Path(found.origin).with_name("training_args.py")  # read, because importing it takes seconds
        if source.exists() and "train_sampling_strategy" not in source.read_text(encoding="utf-8"):
            return "TrainingArguments(group_by_length=True)"
    return 'TrainingArguments(train_sampling_strategy="group_by_length")'
