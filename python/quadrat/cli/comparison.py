"""`python -m quadrat bench`: quadrat's collators against those of transformers, on the user's own data."""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from quadrat.cli.command import CommandError, complain, console, one_line, require, say, table, with_progress
from quadrat.cli.source import DataOptions, Source, load_tokenizer, longest_sane, open_source, packages_for

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from quadrat.cli.measure import Collate, Feature, Times

# So many batches are compared; one of them is timed.
_BATCHES = 16
_LABELS = 9  # of tokens


@dataclass(frozen=True)
class Options(DataOptions):
    """The user's options; None means that the data decides."""

    collators: Sequence[str] | None = None
    seconds: float = 2.0


@dataclass(frozen=True)
class Pair:
    """The collators of one name in transformers and in quadrat, and the features made from a row of tokens."""

    title: str
    reference: Collate
    quadrat: Collate
    prepare: Callable[[Feature], Feature]


@dataclass(frozen=True)
class Result:
    """The times of a pair on one batch, after it agreed on `compared` batches."""

    name: str
    title: str
    rows: int
    tokens: int
    computed: int
    compared: int
    times: Times


def run(options: Options) -> int:
    """Compare and time the collators; 1 if one differs from the reference. Raises CommandError."""
    needed = {} if options.json else {"rich": "cli"}
    require("this command", needed | packages_for(options) | {"torch": "transformers", "transformers": "transformers"})
    from quadrat.cli.measure import DifferenceError, rounded, versions

    source = open_source(options.data, field=options.field, split=options.split)
    tokenizer, note = _tokenizer(source, options.tokenizer)
    pairs = _pairs(tokenizer, options.collators)
    batches = _batches(source, tokenizer, options)
    results = []
    for name, pair in with_progress(pairs.items(), len(pairs), "Comparing"):
        try:
            results.append(_measure(name, pair, batches, options.seconds))
        except DifferenceError as error:
            complain(f"quadrat bench: {name}: {pair.title} differs from transformers: {error}")
            return 1
    if options.json:
        found = [asdict(result) for result in results]
        found = [one | one.pop("times") for one in found]
        about = {"machine": versions(), "data": source.name, "seed": options.seed, "collators": found}
        sys.stdout.write(json.dumps(rounded(about), indent=2) + "\n")
    else:
        _show(source, note, results)
    return 0


def _tokenizer(source: Source, name: str | None) -> tuple[PreTrainedTokenizerBase, str]:
    """The tokenizer that the collators pad with, and a description of it."""
    if name is None:
        raise CommandError(f"{source.name}: the collators need your tokenizer: give --tokenizer")
    tokenizer, note = load_tokenizer(name), name
    if tokenizer.pad_token is None:
        if tokenizer.eos_token is None:
            raise CommandError(f"the tokenizer, {note}, has neither a pad token nor an end-of-sequence token")
        tokenizer.pad_token = tokenizer.eos_token
        note += f", padding with its end-of-sequence token {tokenizer.eos_token}"
    return tokenizer, note


def _pairs(tokenizer: PreTrainedTokenizerBase, names: Sequence[str] | None) -> dict[str, Pair]:
    """The chosen pairs; without a choice, all that the tokenizer can do."""
    if names is None:
        names = [name for name in PAIRS if name != "mlm" or tokenizer.mask_token is not None]
    elif "mlm" in names and tokenizer.mask_token is None:
        raise CommandError("mlm: the tokenizer has no mask token")
    return {name: _pair(name, tokenizer) for name in names}


def _columns(tokenizer: PreTrainedTokenizerBase, row: Feature) -> Feature:
    """The columns that the tokenizer makes."""
    return {name: row[name] for name in tokenizer.model_input_names if name in row}


def _columns_to_mask(tokenizer: PreTrainedTokenizerBase, row: Feature) -> Feature:
    name = "special_tokens_mask"
    return _columns(tokenizer, row) | ({name: row[name]} if name in row else {})


def _labelled_tokens(tokenizer: PreTrainedTokenizerBase, row: Feature) -> Feature:
    """The columns, and labels made up of the ids: the times are those of any labels."""
    return _columns(tokenizer, row) | {"labels": [token % _LABELS for token in row["input_ids"]]}


def _only_tokens(tokenizer: PreTrainedTokenizerBase, row: Feature) -> Feature:
    del tokenizer
    return {"input_ids": row["input_ids"]}


# The class of each pair, its options, and the features it takes of a row of tokens.
PAIRS: dict[str, tuple[str, dict[str, Any], Callable[[PreTrainedTokenizerBase, Feature], Feature]]] = {
    "padding": ("DataCollatorWithPadding", {}, _columns),
    "mlm": ("DataCollatorForLanguageModeling", {"mlm": True}, _columns_to_mask),
    "clm": ("DataCollatorForLanguageModeling", {"mlm": False}, _columns),
    "flattening": ("DataCollatorWithFlattening", {}, _only_tokens),
    "token-classification": ("DataCollatorForTokenClassification", {}, _labelled_tokens),
}


def _pair(name: str, tokenizer: PreTrainedTokenizerBase) -> Pair:
    import transformers

    import quadrat

    cls, options, prepare = PAIRS[name]
    said = ", ".join(f"{option}={value}" for option, value in options.items())
    pads = {} if prepare is _only_tokens else {"tokenizer": tokenizer}
    return Pair(
        f"{cls}({said})" if said else cls,
        getattr(transformers, cls)(**pads, **options),
        getattr(quadrat, cls)(**pads, **options),
        functools.partial(prepare, tokenizer),
    )


def _batches(source: Source, tokenizer: PreTrainedTokenizerBase, options: Options) -> list[list[Feature]]:
    """Some batches of tokenised rows, of rows chosen by the seed; the one with the median number of tokens first."""
    order = np.random.default_rng(options.seed).permutation(len(source))
    max_length = options.max_length or longest_sane(tokenizer)
    size = min(options.batch_size, len(order))
    count = min(_BATCHES, len(order) // size)
    chosen = [part.tolist() for part in np.split(order[: count * size], count)]
    if source.has_tokens:
        made = [source.tokens(part, tokenizer.model_input_names, max_length) for part in chosen]
    else:
        made = [_tokenised(tokenizer, source.texts(part), max_length) for part in chosen]
    made.sort(key=_tokens)
    return [made.pop(count // 2), *made]


def _tokenised(tokenizer: PreTrainedTokenizerBase, texts: list[str], max_length: int | None) -> list[Feature]:
    options = {"truncation": max_length is not None, "max_length": max_length, "return_special_tokens_mask": True}
    # One by one, as a data set gives them: no two rows share an object.
    return [dict(tokenizer(text, verbose=False, **options)) for text in texts]


def _tokens(batch: list[Feature]) -> int:
    return sum(len(row["input_ids"]) for row in batch)


def _measure(name: str, pair: Pair, batches: list[list[Feature]], seconds: float) -> Result:
    """Compare a pair on all batches, then time it on the first. Raises DifferenceError and CommandError."""
    from quadrat.cli.measure import DifferenceError, check_collators, compare

    made = [[pair.prepare(row) for row in batch] for batch in batches]
    for number, batch in enumerate(made, start=1):
        where = f"batch {number} of {len(made)}"
        try:
            pair.reference(batch)
        except Exception as error:  # whatever a collator may say of these rows
            raise CommandError(f"{name}, {where}: transformers' collator fails with it: {one_line(error)}") from error
        try:
            check_collators(pair.reference, pair.quadrat, batch)
        except DifferenceError as error:
            raise DifferenceError(f"{where}: {error}") from error
        except Exception as error:
            raise DifferenceError(f"{where}: {type(error).__name__}: {one_line(error)}") from error
    timed = made[0]
    return Result(
        name,
        pair.title,
        rows=len(timed),
        tokens=_tokens(timed),
        computed=int(np.asarray(pair.reference(timed)["input_ids"]).size),
        compared=len(made),
        times=compare(pair.reference, pair.quadrat, timed, seconds=seconds),
    )


def _show(source: Source, note: str, results: list[Result]) -> None:
    from quadrat.cli.measure import microseconds, times_as, versions

    out = console()
    first = results[0]
    say(
        out,
        f"{source.name}: {first.compared} batch{'es' * (first.compared > 1)} of {first.rows} rows; tokenizer: {note}.",
    )
    say(
        out,
        "All batches equal those of transformers: keys, dtypes, values, and the random generators' states afterwards.",
    )
    headings = ("collator", "tokens", "with\npadding", "transformers", "quadrat", "faster,\ncold", "faster,\nwarm")
    out.print(
        table(
            headings,
            (
                (
                    result.name,
                    f"{result.tokens:,}",
                    f"{result.computed:,}",
                    microseconds(result.times.reference_median_ns),
                    microseconds(result.times.quadrat_median_ns),
                    times_as(result.times.median_of_ratios),
                    times_as(result.times.ratio_alone),
                )
                for result in results
            ),
        )
    )
    say(
        out,
        "Times are medians for one batch. Cold: the two collators are called in turn, so that the CPU caches hold the "
        "other one's data. Warm: each is called repeatedly by itself. Times in a training loop are between the two.",
    )
    facts = versions()
    names = ", ".join(f"{name} {facts[name]}" for name in ("torch", "numpy", "transformers", "quadrat"))
    say(out, f"One thread, {facts['architecture']}, Python {facts['python']}, {names}.")
