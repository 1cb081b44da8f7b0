"""`python -m quadrat bench`: quadrat's collators against those of transformers, on the user's own data."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from typing import TYPE_CHECKING, Any

import numpy as np

from quadrat.cli.command import CommandError, complain, console, one_line, require, say, table, with_progress
from quadrat.cli.corpus import Corpus, load_tokenizer, longest_sane, open_corpus, packages_for

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from quadrat.cli.measure import Feature

# So many batches are compared; one of them is timed.
_BATCHES = 16
_LABELS = 9  # of tokens

# The class of each pair of collators, and its options.
PAIRS: dict[str, tuple[str, dict[str, Any]]] = {
    "padding": ("DataCollatorWithPadding", {}),
    "mlm": ("DataCollatorForLanguageModeling", {"mlm": True}),
    "clm": ("DataCollatorForLanguageModeling", {"mlm": False}),
    "flattening": ("DataCollatorWithFlattening", {}),
    "token-classification": ("DataCollatorForTokenClassification", {}),
}


def run(options: Namespace) -> int:
    """Compare and time the collators; 1 if one differs from the reference. Raises CommandError."""
    needed = {} if options.json else {"rich": "cli"}
    require("this command", needed | packages_for(options) | {"torch": "transformers", "transformers": "transformers"})
    from quadrat.cli.measure import DifferenceError, rounded, versions

    corpus = open_corpus(options)
    if options.tokenizer is None:
        raise CommandError(f"{corpus.name}: the collators need your tokenizer: give --tokenizer")
    tokenizer, note = load_tokenizer(options.tokenizer), options.tokenizer
    if tokenizer.pad_token is None:
        if tokenizer.eos_token is None:
            raise CommandError(f"the tokenizer, {note}, has neither a pad token nor an end-of-sequence token")
        tokenizer.pad_token = tokenizer.eos_token
        note += f", padding with its end-of-sequence token {tokenizer.eos_token}"
    names = options.collators or [name for name in PAIRS if name != "mlm" or tokenizer.mask_token is not None]
    if "mlm" in names and tokenizer.mask_token is None:
        raise CommandError("mlm: the tokenizer has no mask token")
    batches = _batches(corpus, tokenizer, options)
    try:
        named = with_progress(names, len(names), "Comparing")
        results = [_measure(name, tokenizer, batches, options.seconds) for name in named]
    except DifferenceError as error:
        complain(f"quadrat bench: {error}")
        return 1
    if options.json:
        about = {"machine": versions(), "data": corpus.name, "seed": options.seed, "collators": results}
        sys.stdout.write(json.dumps(rounded(about), indent=2) + "\n")
    else:
        _show(corpus, note, results)
    return 0


def _features(name: str, tokenizer: PreTrainedTokenizerBase, row: Feature) -> Feature:
    """The part of a row of tokens that the collators of a name take."""
    ids = row["input_ids"]
    if name == "flattening":
        return {"input_ids": ids}
    kept = [*tokenizer.model_input_names, *(["special_tokens_mask"] if name == "mlm" else [])]
    made = {column: row[column] for column in kept if column in row}
    # Labels made up of the ids: the times are those of any labels.
    return made | ({"labels": [token % _LABELS for token in ids]} if name == "token-classification" else {})


def _batches(corpus: Corpus, tokenizer: PreTrainedTokenizerBase, options: Namespace) -> list[list[Feature]]:
    """Some batches of tokenised rows, of rows chosen by the seed; the one with the median number of tokens first."""
    order = np.random.default_rng(options.seed).permutation(len(corpus))
    max_length = options.max_length or longest_sane(tokenizer)
    size = min(options.batch_size, len(order))
    count = min(_BATCHES, len(order) // size)
    chosen = [part.tolist() for part in np.split(order[: count * size], count)]
    if corpus.has_tokens:
        made = [corpus.tokens(part, tokenizer.model_input_names, max_length) for part in chosen]
    else:
        cut = {"truncation": max_length is not None, "max_length": max_length, "return_special_tokens_mask": True}
        texts = [corpus.values(corpus.column).take(part).to_pylist() for part in chosen]
        # One by one, as a data set gives them: no two rows share an object.
        made = [[dict(tokenizer(text, verbose=False, **cut)) for text in part] for part in texts]
    made.sort(key=_tokens)
    return [made.pop(count // 2), *made]


def _tokens(batch: list[Feature]) -> int:
    return sum(len(row["input_ids"]) for row in batch)


def _measure(
    name: str, tokenizer: PreTrainedTokenizerBase, batches: list[list[Feature]], seconds: float
) -> dict[str, Any]:
    """Compare a pair on all batches, then time it on the first. Raises DifferenceError and CommandError."""
    import transformers

    import quadrat
    from quadrat.cli.measure import DifferenceError, calls_of, check_collators, timed

    cls, options = PAIRS[name]
    pads = {} if name == "flattening" else {"tokenizer": tokenizer}
    reference, ours = (getattr(library, cls)(**pads, **options) for library in (transformers, quadrat))
    made = [[_features(name, tokenizer, row) for row in batch] for batch in batches]
    for number, batch in enumerate(made, start=1):
        where, differ = f"batch {number} of {len(made)}", f"{name}: {cls} differs from transformers"
        try:
            reference(batch)
        except Exception as error:  # whatever a collator may say of these rows
            raise CommandError(f"{name}, {where}: transformers' collator fails with it: {one_line(error)}") from error
        try:
            check_collators(reference, ours, batch)
        except DifferenceError as error:
            raise DifferenceError(f"{differ}: {where}: {error}") from error
        except Exception as error:
            raise DifferenceError(f"{differ}: {where}: {type(error).__name__}: {one_line(error)}") from error
    calls = calls_of(reference, made[0])
    times = timed((reference, ours), made[0], seconds=seconds, calls=calls, at_least=20)
    cold = np.median(times, axis=0).tolist()
    warm = [np.median(timed([one], made[0], seconds=seconds / 4, calls=calls)) for one in (reference, ours)]
    return {
        "name": name,
        "title": f"{cls}({', '.join(f'{option}={value}' for option, value in options.items())})",
        "rows": len(made[0]),
        "tokens": _tokens(made[0]),
        "computed": int(np.asarray(reference(made[0])["input_ids"]).size),
        "compared": len(made),
        "reference_median_ns": cold[0],
        "quadrat_median_ns": cold[1],
        "median_of_ratios": float(np.median(times[:, 0] / times[:, 1])),
        "ratio_alone": float(warm[0] / warm[1]),
    }


def _show(corpus: Corpus, note: str, results: list[dict[str, Any]]) -> None:
    from quadrat.cli.measure import LIBRARIES, microseconds, times_as, versions

    out = console()
    compared, rows = results[0]["compared"], results[0]["rows"]
    say(out, f"{corpus.name}: {compared} batch{'es' * (compared > 1)} of {rows} rows; tokenizer: {note}.")
    say(out, "All batches equal those of transformers: keys, dtypes, values, and the random generators' states.")
    headings = ("collator", "tokens", "with\npadding", "transformers", "quadrat", "speed-up,\ncold", "speed-up,\nwarm")
    shown: dict[str, Any] = {"name": str, "tokens": "{:,}".format, "computed": "{:,}".format}
    shown |= dict.fromkeys(("reference_median_ns", "quadrat_median_ns"), microseconds)
    shown |= dict.fromkeys(("median_of_ratios", "ratio_alone"), times_as)
    out.print(table(headings, ([show(result[key]) for key, show in shown.items()] for result in results)))
    say(
        out,
        "Times are medians for one batch. Cold: the two collators are called in turn, so that the CPU caches hold the "
        "other one's data. Warm: each is called repeatedly by itself. Times in a training loop are between the two.",
    )
    facts = versions()
    names = ", ".join(f"{name} {facts[name]}" for name in LIBRARIES)
    say(out, f"One thread, {facts['architecture']}, Python {facts['python']}, {names}.")
