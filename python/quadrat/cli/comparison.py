"""`python -m quadrat bench`: quadrat's collators against those of transformers, on the user's own data."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from quadrat.cli.command import CommandError, complain, console, one_line, progress_console, require
from quadrat.cli.source import DataOptions, Source, TokenColumn, load_tokenizer, longest_sane, open_source, train_on

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from quadrat.cli.measure import Collate, Feature, Times

# So many batches are compared; one of them is timed.
_BATCHES = 16
_LABELS = 9  # of tokens


@dataclass(frozen=True)
class Options(DataOptions):
    """What the user asked for; None where the data decides."""

    collators: Sequence[str] | None = None
    seconds: float = 2.0


@dataclass(frozen=True)
class Pair:
    """The collators of one name in transformers and in quadrat, and the features they take of a row of tokens."""

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
    if not options.json:
        require("rich", "cli", "this command")
    require("torch", "transformers", "this command")
    require("transformers", "transformers", "this command")
    from quadrat.cli.measure import DifferenceError, rounded, versions

    source = open_source(options.data, field=options.field, split=options.split)
    tokenizer, note = _tokenizer(source, options.tokenizer)
    pairs = _pairs(tokenizer, options.collators)
    batches = _batches(source, tokenizer, options)
    results = []
    for name, pair in _with_progress(pairs):
        try:
            results.append(_measure(name, pair, batches, options.seconds))
        except DifferenceError as error:
            complain(f"quadrat bench: {name}: {pair.title} differs from transformers: {error}")
            return 1
    if options.json:
        found = [{**asdict(result), **asdict(result.times)} for result in results]
        for one in found:
            del one["times"]
        about = {"machine": versions(), "data": source.name, "seed": options.seed, "collators": found}
        sys.stdout.write(json.dumps(rounded(about), indent=2) + "\n")
    else:
        _show(source, note, results)
    return 0


def _tokenizer(source: Source, name: str | None) -> tuple[PreTrainedTokenizerBase, str]:
    """The tokenizer that the collators pad with, and what is to be said about it."""
    if name is not None:
        tokenizer = load_tokenizer(name)
        note = name
    elif isinstance(source, TokenColumn):
        raise CommandError(f"{source.name}: collators pad with the tokenizer that made the tokens: give --tokenizer")
    else:
        tokenizer = train_on(source)
        note = f"a WordPiece of {len(tokenizer):,} entries trained on the texts"
    if tokenizer.pad_token is None:
        if tokenizer.eos_token is None:
            raise CommandError(f"the tokenizer, {note}, has neither a pad token nor an end of sequence to pad with")
        tokenizer.pad_token = tokenizer.eos_token
        note += f", padding with its end of sequence {tokenizer.eos_token}"
    return tokenizer, note


def _pairs(tokenizer: PreTrainedTokenizerBase, names: Sequence[str] | None) -> dict[str, Pair]:
    """The chosen pairs; without a choice, all that the tokenizer can do."""
    if names is None:
        names = [name for name in PAIRS if name != "mlm" or tokenizer.mask_token is not None]
    elif "mlm" in names and tokenizer.mask_token is None:
        raise CommandError("mlm: the tokenizer has no mask token")
    return {name: PAIRS[name](tokenizer) for name in names}


def _padding(tokenizer: PreTrainedTokenizerBase) -> Pair:
    return _pair("DataCollatorWithPadding", _of_the_tokenizer(tokenizer), tokenizer)


def _masked(tokenizer: PreTrainedTokenizerBase) -> Pair:
    prepare = _of_the_tokenizer(tokenizer, "special_tokens_mask")
    return _pair("DataCollatorForLanguageModeling", prepare, tokenizer, mlm=True)


def _causal(tokenizer: PreTrainedTokenizerBase) -> Pair:
    return _pair("DataCollatorForLanguageModeling", _of_the_tokenizer(tokenizer), tokenizer, mlm=False)


def _flattening(tokenizer: PreTrainedTokenizerBase) -> Pair:
    return _pair("DataCollatorWithFlattening", lambda row: {"input_ids": row["input_ids"]})


def _token_classification(tokenizer: PreTrainedTokenizerBase) -> Pair:
    columns = _of_the_tokenizer(tokenizer)

    def prepare(row: Feature) -> Feature:
        # Made up of the ids; the times are those of any labels.
        return {**columns(row), "labels": [token % _LABELS for token in row["input_ids"]]}

    return _pair("DataCollatorForTokenClassification", prepare, tokenizer)


PAIRS: dict[str, Callable[[PreTrainedTokenizerBase], Pair]] = {
    "padding": _padding,
    "mlm": _masked,
    "clm": _causal,
    "flattening": _flattening,
    "token-classification": _token_classification,
}


def _pair(name: str, prepare: Callable[[Feature], Feature], *args: Any, **options: Any) -> Pair:
    import transformers

    import quadrat

    said = ", ".join(f"{option}={value}" for option, value in options.items())
    return Pair(
        f"{name}({said})" if said else name,
        getattr(transformers, name)(*args, **options),
        getattr(quadrat, name)(*args, **options),
        prepare,
    )


def _of_the_tokenizer(tokenizer: PreTrainedTokenizerBase, *further: str) -> Callable[[Feature], Feature]:
    """Takes the columns that the tokenizer makes, and further ones, of a row."""
    names = (*tokenizer.model_input_names, *further)
    return lambda row: {name: row[name] for name in names if name in row}


def _batches(source: Source, tokenizer: PreTrainedTokenizerBase, options: Options) -> list[list[Feature]]:
    """Some batches of tokenised rows, of rows chosen by the seed; the one with the median number of tokens first."""
    order = np.random.default_rng(options.seed).permutation(len(source))
    max_length = options.max_length or longest_sane(tokenizer)
    size = min(options.batch_size, len(order))
    count = min(_BATCHES, len(order) // size)
    chosen = [part.tolist() for part in np.split(order[: count * size], count)]
    if isinstance(source, TokenColumn):
        made = [source.pick(part, tokenizer.model_input_names, max_length) for part in chosen]
    else:
        made = [_tokenised(tokenizer, source.pick(part), max_length) for part in chosen]
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
            raise CommandError(
                f"{name}, {where}: transformers' collator does not take it: {one_line(error)}"
            ) from error
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


def _with_progress(pairs: dict[str, Pair]) -> Any:
    """The pairs, with a bar on a terminal's standard error."""
    if not sys.stderr.isatty():
        return pairs.items()
    from rich.progress import track

    return track(pairs.items(), "Comparing", console=progress_console(), transient=True)


def _show(source: Source, note: str, results: list[Result]) -> None:
    from rich import box
    from rich.table import Table

    from quadrat.cli.measure import microseconds, times_as, versions

    out = console()
    first = results[0]
    out.print(
        f"{source.name}: {first.compared} batch{'es' * (first.compared > 1)} of {first.rows} rows; tokenizer: {note}."
    )
    out.print("All collators give what transformers' give: values, dtypes, keys and the states of random generators.")
    view = Table(box=box.SIMPLE_HEAD, padding=0)
    view.add_column("collator", no_wrap=True)
    for heading in ("tokens", "computed", "transformers", "quadrat", "in turn", "alone"):
        view.add_column(heading, justify="right")
    for result in results:
        view.add_row(
            result.name,
            f"{result.tokens:,}",
            f"{result.computed:,}",
            microseconds(result.times.reference_median_ns),
            microseconds(result.times.quadrat_median_ns),
            times_as(result.times.median_of_ratios),
            times_as(result.times.ratio_alone),
        )
    out.print(view)
    out.print(
        "Times are medians of one batch, the two collators called in turn. The ratios say how many times as fast "
        "quadrat is: in turn, and each alone, call after call."
    )
    facts = versions()
    names = ", ".join(f"{name} {facts[name]}" for name in ("torch", "numpy", "transformers", "quadrat"))
    out.print(f"One thread, {facts['architecture']}, Python {facts['python']}, {names}.")
