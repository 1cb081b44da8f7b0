"""`quadrat verify`: drawn batches, made by quadrat and by the installed transformers, and compared to the bit."""

from __future__ import annotations

import logging
import os
import warnings
from argparse import Namespace
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from quadrat.cli.command import CommandError, console, require, say, table

BATCHES = 150  # of each collator
_WORDS, _SPECIAL = 60, ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
_LENGTHS: tuple[Callable[[np.random.Generator], list[int]], ...] = (
    lambda rng: rng.integers(1, 40, rng.integers(2, 9)).tolist(),
    lambda rng: [int(rng.integers(2, 20))] * int(rng.integers(2, 6)),
    lambda rng: [int(rng.integers(1, 20))],
    lambda rng: [1, *rng.integers(1, 9, 3).tolist()],
    lambda rng: [*rng.integers(1, 9, 3).tolist(), 0],
)
Draw = Callable[[np.random.Generator], Any]
Case = tuple[Any, Any, Draw]  # the reference's collator or function, quadrat's, and what draws features


def run(options: Namespace) -> int:
    """Compare, and print a table; the status is 1 if a batch differs."""
    require("quadrat verify", {"torch": "torch", "transformers": "transformers", "rich": "cli"})
    os.environ["QUADRAT_UNTESTED"] = "1"  # all batches are compiled
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    logging.getLogger("quadrat").setLevel(logging.ERROR)  # which batches fall back
    import transformers

    from quadrat.installed import imitated
    from quadrat.support.counts import stats

    rng, found, rows, twins = np.random.default_rng(options.seed), dict[str, str](), [], []
    for name, choices in (_collators() | _functions()).items():
        stats(reset=True)
        differing, batches = _compare(choices, rng)
        twin = choices[0][1]._imitates
        compiled = "" if twin == "convert_to_tensors" else f"{stats().compiled}"  # which makes no batches
        rows.append((name, f"{batches}", compiled, f"{len(differing)}"))
        if differing:
            found[name] = differing[0]
        else:
            twins.append(twin)
    out = console()
    say(out, f"Drawn batches of quadrat and of transformers {transformers.__version__}, compared to the bit:")
    out.print(table(("collator or function", "batches", "compiled", "differences"), rows))
    for name, difference in found.items():
        say(out, f"{name}: {difference}")
    known = imitated.remembered()
    keys = {twin: key for twin in twins if imitated.unlike_tested(twin) and (key := imitated.key_of(twin)) is not None}
    if new := {twin: key for twin, key in keys.items() if key not in known.get(twin, ())}:
        if options.remember:
            try:
                say(out, f"{len(new)} of them are known from now on: {imitated.remember(new)}.")
            except OSError as error:
                raise CommandError(f"--remember: {error}") from error
        else:
            say(out, "quadrat was not tested with this code. quadrat verify --remember has it compile such batches.")
    return int(bool(found))


def _compare(choices: list[Case], rng: np.random.Generator) -> tuple[list[str], int]:
    from quadrat.planning.compared import difference_of

    differing, batches = [], 0
    for theirs, ours, draw in choices:
        for _ in range(BATCHES // len(choices)):
            found = difference_of(theirs, ours, draw(rng))
            batches += 1
            if found is not None:
                differing.append(found)
    return differing, batches


def _functions() -> dict[str, list[Case]]:
    """Functions that quadrat puts in the place of transformers'."""
    from transformers import BatchEncoding, Wav2Vec2FeatureExtractor

    from quadrat.installed import originals
    from quadrat.planning.conversion import convert_to_tensors
    from quadrat.planning.feature_pad import FeaturePadOptions, feature_pad
    from quadrat.tokenizers.pad import tokenizer_pad

    tokenizer, extractor = _tokenizer(), Wav2Vec2FeatureExtractor()
    rows, equal = _rows(label=lambda n: n % 3 - 1), _rows(equal=True, lists=True)

    def encoding(rng: np.random.Generator) -> Any:
        drawn = equal(rng)
        return BatchEncoding({name: [row[name] for row in drawn] for name in drawn[0]})

    def clips(rng: np.random.Generator) -> list[Any]:
        return [{"input_values": rng.random(len(row["input_ids"]), np.float32)} for row in rows(rng)]

    def case(twin: str, theirs: Any, ours: Any, draw: Draw) -> Case:
        ours._imitates, ours.tokenizer, theirs.tokenizer = twin, tokenizer, tokenizer  # as collators have them
        return theirs, ours, draw

    theirs: Any
    ours: Any
    found: dict[str, list[Case]] = {"tokenizer.pad": [], "convert_to_tensors": [], "feature_extractor.pad": []}
    for one in ("pt", "np"):
        theirs, ours = (partial(pad, tokenizer, return_tensors=one) for pad in (originals.PAD, tokenizer_pad))
        found["tokenizer.pad"].append(case("tokenizer_pad", theirs, ours, rows))
        theirs, ours = (partial(call, tensor_type=one) for call in (originals.CONVERT_TO_TENSORS, convert_to_tensors))
        found["convert_to_tensors"].append(case("convert_to_tensors", theirs, ours, encoding))
        theirs = partial(originals.FEATURE_PAD, extractor, return_tensors=one)
        ours = partial(feature_pad, extractor, options=FeaturePadOptions(return_tensors=one))
        found["feature_extractor.pad"].append(case("feature_pad", theirs, ours, clips))
    return found


def _collators() -> dict[str, list[Case]]:
    import transformers

    import quadrat
    from quadrat.installed.behaviour import flattening_takes_arrays

    own: dict[str, Any] = {"tokenizer": _tokenizer()}
    masked = _rows(special_tokens_mask=lambda n: [1] * min(n, 1) + [0] * (n - 1))
    plain, typed = _rows(), _rows(token_type_ids=lambda n: [0] * n, label=lambda n: n % 3 - 1)
    frameworks: list[dict[str, Any]] = [{}, {"return_tensors": "np"}]
    spread = {"return_flash_attn_kwargs": True, "return_seq_idx": True}
    only_lists = not flattening_takes_arrays()
    cases: dict[str, list[tuple[dict[str, Any], Draw]]] = {
        "DataCollatorWithPadding": [
            (own | more | one, draw)
            for more in frameworks
            for one, draw in (({}, plain), ({"pad_to_multiple_of": 8}, typed))
        ],
        "DataCollatorForTokenClassification": [(own | more, _rows(labels=lambda n: [-100] * n)) for more in frameworks],
        "DataCollatorForSeq2Seq": [(own | more, _rows(labels=lambda n: list(range(n + 1)))) for more in frameworks],
        "DataCollatorForLanguageModeling": [
            (own | more | one, draw)
            for more in frameworks
            for one, draw in (({}, plain), ({"seed": 3}, masked), ({"mlm": False}, plain))
        ],
        "DataCollatorForPermutationLanguageModeling": [(own | more, _rows(even=True)) for more in frameworks],
        "DataCollatorForMultipleChoice": [(own, _choices)],
        "DataCollatorWithFlattening": [
            ({}, _rows(lists=only_lists)),
            (spread, _rows(lists=only_lists)),
            ({}, _rows(lists=only_lists, labels=lambda n: [4] * n)),
        ],
        "DefaultDataCollator": [
            (more, _rows(equal=True, label=value))
            for more in frameworks
            for value in (lambda n: n % 3 - 1, lambda n: n / 4)
        ],
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {
            name: [(getattr(transformers, name)(**one), getattr(quadrat, name)(**one), draw) for one, draw in choices]
            for name, choices in cases.items()
            if hasattr(transformers, name)
        }


def _tokenizer() -> Any:
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    words = {word: number for number, word in enumerate((*_SPECIAL, *(f"w{number}" for number in range(_WORDS))))}
    special = {f"{name[1:-1].lower()}_token": name for name in _SPECIAL}
    made = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordLevel(words, unk_token="[UNK]")), **special)
    made.model_input_names = ["input_ids", "token_type_ids", "attention_mask"]
    return made


def _rows(*, even: bool = False, equal: bool = False, lists: bool = False, **columns: Callable[[int], Any]) -> Draw:
    """A function that draws rows: lists, arrays or tensors, of lengths of all kinds."""
    import torch

    forms: tuple[Callable[[list[int]], Any], ...] = (list, list, np.array, torch.tensor)

    def draw(rng: np.random.Generator) -> list[Any]:
        lengths = _LENGTHS[1 if equal else int(rng.integers(len(_LENGTHS)))](rng)
        lengths = [2 * length for length in lengths] if even else lengths
        form = list if lists else forms[int(rng.integers(len(forms)))]
        has_mask = bool(rng.integers(2))
        return [_row(rng, length, has_mask, columns, form) for length in lengths]

    return draw


def _row(rng: np.random.Generator, length: int, has_mask: bool, columns: Any, form: Any) -> dict[str, Any]:
    ids = rng.integers(len(_SPECIAL), len(_SPECIAL) + _WORDS, length).tolist()
    made = {"input_ids": ids} | ({"attention_mask": [1] * length} if has_mask else {})
    made |= {name: value(length) for name, value in columns.items()}
    return {name: form(value) if type(value) is list and value else value for name, value in made.items()}


def _choices(rng: np.random.Generator) -> list[Any]:
    def row(length: int) -> list[int]:
        return rng.integers(len(_SPECIAL), len(_SPECIAL) + _WORDS, length).tolist()  # type: ignore[no-any-return]

    lengths = rng.integers(1, 30, (int(rng.integers(1, 5)), 2))
    return [{"input_ids": [row(one), row(other)], "label": int(one % 2)} for one, other in lengths]
