"""Which way of batching to choose, based on the costs, and the code for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from quadrat.cli.waste import BUDGET, DYNAMIC, FIXED, GROUPED, LITTLE_PADDING, PACKED, Cost

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

# Up to this share, a token budget is good enough; packs, whose attention needs row boundaries, are not needed.
ENOUGH_WITH_BUDGET = 0.10
# From so many times as many steps on, or as few, a token budget is not just a faster epoch.
MANY_STEPS = 2


def choose(ways: Mapping[str, Cost]) -> str:
    """The way of batching to advise: `DYNAMIC`, `BUDGET` or `PACKED`."""
    if ways[DYNAMIC].padding <= LITTLE_PADDING:
        return DYNAMIC
    return BUDGET if ways[BUDGET].padding <= ENOUGH_WITH_BUDGET else PACKED


def advise(
    ways: Mapping[str, Cost], tokenizer: PreTrainedTokenizerBase | None = None, stored: Mapping[str, Any] | None = None
) -> list[str]:
    """Two or three sentences: what to choose, and why. More if stored rows, steps or the tokenizer need attention."""
    said = _by_costs(ways, "--trim " * bool(stored))
    if stored:
        said.insert(
            0,
            f"Rows are stored padded to {stored['longest']:,} tokens: {stored['padding']:.1%} of what is stored is "
            "padding, which the numbers here are without. Map without padding, or cut it from batches: trim=True in a "
            "collator, or quadrat run --trim.",
        )
    factor = ways[BUDGET].batches / ways[DYNAMIC].batches
    if not 1 / MANY_STEPS < factor < MANY_STEPS:
        more, fewer = ("more", "fewer") if factor > 1 else ("fewer", "more")
        said.append(
            f"Careful: with this token budget an epoch has {ways[BUDGET].batches:,} steps instead of "
            f"{ways[DYNAMIC].batches:,}, each on {fewer} rows. A schedule counted in epochs makes {more} optimizer "
            "steps, and one counted in steps (max_steps, warmup_steps, save_steps) spans "
            f"{fewer} rows: change --max-tokens, the gradient accumulation or the learning rate."
        )
    if tokenizer is not None and tokenizer.pad_token is None:
        remedy = "set tokenizer.pad_token = tokenizer.eos_token"
        if tokenizer.eos_token is None:
            added = 'tokenizer.add_special_tokens({"pad_token": "[PAD]"})'
            remedy = f"call {added} and model.resize_token_embeddings(len(tokenizer))"
        said.append(f"The tokenizer has no pad token: before padding, {remedy}.")
    return said


def _by_costs(ways: Mapping[str, Cost], trim: str) -> list[str]:
    fixed, dynamic, grouped, budget, packed = (ways[name] for name in (FIXED, DYNAMIC, GROUPED, BUDGET, PACKED))
    choice = choose(ways)
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
            "If all batches must have the same number of rows, group rows by length (quadrat run "
            f"{trim}--group-by-length): {grouped.padding:.1%} padding.",
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
    ways: Mapping[str, Cost],
    *,
    batch_size: int,
    max_length: int,
    max_tokens: int,
    pad_to_multiple_of: int | None = None,
    longest: int = 0,
    trim: bool = False,
) -> dict[str, list[str]]:
    """The lines of Python that do what `advise` says with a `dataset` whose rows have at most `longest` tokens."""
    choice = choose(ways)
    multiple_of = pad_to_multiple_of or 1
    rounding = "" if pad_to_multiple_of is None else f", pad_to_multiple_of={pad_to_multiple_of}"
    pad = f"collator = quadrat.DataCollatorWithPadding(tokenizer{rounding}{', trim=True' * trim})"
    if choice == DYNAMIC:
        loader = f"loader = DataLoader(dataset, batch_size={batch_size}, shuffle=True, collate_fn=collator)"
        return {"A DataLoader": [pad, loader], "Trainer": [pad, *_trainer(batch_size, "dataset")]}
    needed = -(-longest // multiple_of) * multiple_of
    rounded = f", multiple_of={multiple_of}" * (multiple_of != 1)
    options = f"max_tokens={max_tokens}{rounded}" + ', overlong="alone"' * (needed > max_tokens)
    by_budget = [
        f"sampler = quadrat.TokenBudgetBatchSampler(quadrat.lengths(dataset{', trim=True' * trim}), {options})",
        pad,
        "loader = DataLoader(dataset, batch_sampler=sampler, collate_fn=collator)",
        "# before each epoch: sampler.set_epoch(epoch)",
    ]
    if choice == BUDGET:
        change = f"print(quadrat.batch_by_tokens(trainer, max_tokens={max(max_tokens, needed)}))"
        return {"A DataLoader": by_budget, "Trainer": [pad, *_trainer(batch_size, "dataset"), change]}
    packs = max(1, round(ways[DYNAMIC].tokens / ways[DYNAMIC].batches / max_length))  # with about the tokens of a batch
    packed = [
        *["# a dataset that was mapped without padding"] * trim,
        f"packs = quadrat.PackedDataset(dataset, max_length={max_length})",
        f"collator = quadrat.DataCollatorWithFlattening(return_flash_attn_kwargs=True{rounding})",
    ]
    loader = f"loader = DataLoader(packs, batch_size={packs}, collate_fn=collator)"
    return {
        "A DataLoader": [*packed, loader, "# before each epoch: packs.set_epoch(epoch)"],
        "Trainer": [*packed, *_trainer(packs, "packs"), "trainer.add_callback(quadrat.SetEpochCallback())"],
        "A DataLoader, for a model without such attention": by_budget,
    }


def _trainer(batch_size: int, dataset: str) -> list[str]:
    return [
        f'args = TrainingArguments("output", per_device_train_batch_size={batch_size})',
        f"trainer = Trainer(model, args, train_dataset={dataset}, data_collator=collator)",
    ]
