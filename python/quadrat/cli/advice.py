"""Which way of batching to choose, based on the costs, and the code for it."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from quadrat.cli.waste import BUDGET, DYNAMIC, FIXED, GROUPED, PACKED, Cost

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

# Up to this share of padding, no other way is worth the effort.
LITTLE_PADDING = 0.05
# Up to this share, a token budget is good enough; packs, whose attention needs row boundaries, are not needed.
ENOUGH_WITH_BUDGET = 0.10

# How to get a pad token, by whether the tokenizer has an end-of-sequence token.
_PAD_TOKEN = {
    True: "set tokenizer.pad_token = tokenizer.eos_token",
    False: 'call tokenizer.add_special_tokens({"pad_token": "[PAD]"}) and '
    "model.resize_token_embeddings(len(tokenizer))",
}


def choose(costs: Sequence[Cost]) -> str:
    """The way of batching to advise: `DYNAMIC`, `BUDGET` or `PACKED`."""
    ways = {cost.name: cost for cost in costs}
    if ways[DYNAMIC].padding <= LITTLE_PADDING:
        return DYNAMIC
    return BUDGET if ways[BUDGET].padding <= ENOUGH_WITH_BUDGET else PACKED


def advise(costs: Sequence[Cost], tokenizer: PreTrainedTokenizerBase | None = None) -> list[str]:
    """Two or three sentences: what to choose, and why. One more if the tokenizer has no pad token."""
    said = _by_costs(costs)
    if tokenizer is not None and tokenizer.pad_token is None:
        said.append(f"The tokenizer has no pad token: before padding, {_PAD_TOKEN[tokenizer.eos_token is not None]}.")
    return said


def _by_costs(costs: Sequence[Cost]) -> list[str]:
    ways = {cost.name: cost for cost in costs}
    fixed, dynamic, grouped, budget, packed = (ways[name] for name in (FIXED, DYNAMIC, GROUPED, BUDGET, PACKED))
    choice = choose(costs)
    if choice == DYNAMIC:
        saved = "no token is padding, so there is nothing to save."
        if dynamic.padding:
            saved = f"only {dynamic.padding:.1%} of the tokens are padding, and no other way can save more than that."
        said = [f"Pad to the longest row of each batch: {saved}", "quadrat.DataCollatorWithPadding does this."]
        if fixed.padding > LITTLE_PADDING:
            said.append(f"Padding all rows to one length would make {fixed.factor:.1f} times as many tokens.")
        return said
    if choice == BUDGET:
        return [
            f"Choose batches by a token budget: padding falls from {dynamic.padding:.1%} to {budget.padding:.1%}, and "
            f"an epoch has {1 - budget.computed / dynamic.computed:.0%} fewer tokens than with shuffled batches, "
            "for any model.",
            f"If all batches must have the same number of rows, group rows by length: {grouped.padding:.1%} padding.",
            "If the model's attention accepts row boundaries, packs without padding save the rest: "
            "quadrat.PackedDataset.",
        ]
    return [
        f"Pack rows without padding: a token budget still leaves {budget.padding:.1%} padding, and an epoch of packs "
        f"has {1 - packed.computed / budget.computed:.0%} fewer tokens.",
        "The model's attention must get the row boundaries: load it with "
        'attn_implementation="flash_attention_2", for example.',
        f"For a model without such attention: quadrat.TokenBudgetBatchSampler, {budget.padding:.1%} padding instead of "
        f"{dynamic.padding:.1%} in shuffled batches.",
    ]


def code(
    costs: Sequence[Cost],
    *,
    batch_size: int,
    max_length: int,
    max_tokens: int,
    pad_to_multiple_of: int | None = None,
    longest: int = 0,
) -> dict[str, list[str]]:
    """The lines of Python that do what `advise` says, for a DataLoader and for a Trainer.

    They use `dataset`, whose rows of at most `longest` tokens are in the column "input_ids", `tokenizer` and `model`.
    """
    choice = choose(costs)
    rounding = "" if pad_to_multiple_of is None else f"pad_to_multiple_of={pad_to_multiple_of}"
    pad = f"collator = quadrat.DataCollatorWithPadding({', '.join(filter(None, ['tokenizer', rounding]))})"
    if choice == DYNAMIC:
        return {
            "A DataLoader": [
                pad,
                f"loader = DataLoader(dataset, batch_size={batch_size}, shuffle=True, collate_fn=collator)",
            ],
            "Trainer": [pad, *_trainer(batch_size, "dataset")],
        }
    multiple_of = pad_to_multiple_of or 1
    budget = [f"max_tokens={max_tokens}"]
    budget += [f"multiple_of={multiple_of}"] * (multiple_of != 1)
    budget += ['overlong="alone"'] * (-(-longest // multiple_of) * multiple_of > max_tokens)
    sampler = f"sampler = quadrat.TokenBudgetBatchSampler(quadrat.lengths(dataset), {', '.join(budget)}"
    by_budget = [
        f"{sampler})",
        pad,
        "loader = DataLoader(dataset, batch_sampler=sampler, collate_fn=collator)",
        "# before each epoch: sampler.set_epoch(epoch)",
    ]
    if choice == BUDGET:
        args, *trainer = _trainer(1, "batches", epochs=True)
        return {
            "A DataLoader": by_budget,
            "Trainer": [
                args,
                f"{sampler},",
                "    world_size=args.world_size, rank=None)",
                pad,
                "batches = quadrat.BatchedDataset(dataset, sampler)",
                *trainer,
            ],
            f"Trainer, {batch_size} rows in each batch": [
                pad,
                "quadrat.patch_transformers()  # reads lengths and sorts rows fast, also millions of them",
                *_trainer(batch_size, "dataset", option=grouping()),
            ],
        }
    dynamic = next(cost for cost in costs if cost.name == DYNAMIC)
    packs = max(1, round(dynamic.tokens / dynamic.batches / max_length))  # with about the tokens of a batch
    flatten = ", ".join(filter(None, ["return_flash_attn_kwargs=True", rounding]))
    packed = [
        f"packs = quadrat.PackedDataset(dataset, max_length={max_length})",
        f"collator = quadrat.DataCollatorWithFlattening({flatten})",
    ]
    return {
        "A DataLoader": [
            *packed,
            f"loader = DataLoader(packs, batch_size={packs}, collate_fn=collator)",
            "# before each epoch: packs.set_epoch(epoch)",
        ],
        "Trainer": [*packed, *_trainer(packs, "packs", epochs=True)],
        "A DataLoader, for a model without such attention": by_budget,
    }


def _trainer(batch_size: int, dataset: str, *, option: str = "", epochs: bool = False) -> list[str]:
    """A Trainer of `dataset`; with `epochs`, the dataset has a `set_epoch`."""
    arguments = f'args = TrainingArguments("output", per_device_train_batch_size={batch_size}'
    trainer = f"trainer = Trainer(model, args, train_dataset={dataset}, data_collator=collator"
    return [
        *([f"{arguments},", f"    {option})"] if option else [f"{arguments})"]),
        *([f"{trainer},", "    callbacks=[quadrat.SetEpochCallback()])"] if epochs else [f"{trainer})"]),
    ]


def grouping() -> str:
    """The argument of TrainingArguments that groups rows by length, in the installed transformers or the newest."""
    found = importlib.util.find_spec("transformers")
    if found is not None and found.origin is not None:
        source = Path(found.origin).with_name("training_args.py")  # read, because importing it takes seconds
        if source.exists() and "train_sampling_strategy" not in source.read_text(encoding="utf-8"):
            return "group_by_length=True"
    return 'train_sampling_strategy="group_by_length"'
