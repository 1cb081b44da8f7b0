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
    require("this command", {"torch": "transformers", "transformers": "transformers", "rich": "cli"})
    os.environ["QUADRAT_UNTESTED"] = "1"  # all batches are compiled
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    logging.getLogger("quadrat").setLevel(logging.ERROR)  # which batches fall back
    import transformers

    from quadrat.installed import imitated
    from quadrat.planning.compared import difference_of
    from quadrat.support.counts import stats

    rng, found, rows, twins = np.random.default_rng(options.seed), dict[str, str](), [], []
    for name, choices in (_collators() | _functions()).items():
        stats(reset=True)
        drawn = (case for case in choices for _ in range(BATCHES // len(choices)))
        differences = [difference_of(theirs, ours, draw(rng)) for theirs, ours, draw in drawn]
        differing = [one for one in differences if one is not None]
        twin = choices[0][1]._imitates
        compiled = "" if twin == "convert_to_tensors" else f"{stats().compiled}"  # which makes no batches
        rows.append((name, f"{len(differences)}", compiled, f"{len(differing)}"))
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

    def pad_clips(extractor: Any, features: Any, return_tensors: str) -> Any:
        return feature_pad(extractor, features, options=FeaturePadOptions(return_tensors=return_tensors))

    def cases(twin: str, theirs: Any, ours: Any, draw: Draw, *given: Any, option: str = "return_tensors") -> list[Case]:
        made: list[Any] = []
        for one in ("pt", "np"):
            pair: Any = [partial(call, *given, **{option: one}) for call in (theirs, ours)]
            pair[0].tokenizer = pair[1].tokenizer = tokenizer  # as collators have them
            pair[1]._imitates = twin
            made.append((*pair, draw))
        return made

    conversions = originals.CONVERT_TO_TENSORS, convert_to_tensors
    return {
        "tokenizer.pad": cases("tokenizer_pad", originals.PAD, tokenizer_pad, rows, tokenizer),
        "convert_to_tensors": cases("convert_to_tensors", *conversions, encoding, option="tensor_type"),
        "feature_extractor.pad": cases("feature_pad", originals.FEATURE_PAD, pad_clips, clips, extractor),
    }


def _collators() -> dict[str, list[Case]]:
    import transformers

    import quadrat
    from quadrat.installed.behaviour import flattening_takes_arrays

    own: dict[str, Any] = {"tokenizer": _tokenizer()}
    masked = _rows(special_tokens_mask=lambda n: [1] * min(n, 1) + [0] * (n - 1))
    plain, typed = _rows(), _rows(token_type_ids=lambda n: [0] * n, label=lambda n: n % 3 - 1)
    lists = partial(_rows, lists=not flattening_takes_arrays())
    spread = {"return_flash_attn_kwargs": True, "return_seq_idx": True}
    one: list[dict[str, Any]] = [{}]
    both = [*one, {"return_tensors": "np"}]
    # Of each collator: the options of all cases, those of one framework each, and cases.
    cases: dict[str, tuple[dict[str, Any], list[dict[str, Any]], list[tuple[dict[str, Any], Draw]]]] = {
        "DataCollatorWithPadding": (own, both, [({}, plain), ({"pad_to_multiple_of": 8}, typed)]),
        "DataCollatorForTokenClassification": (own, both, [({}, _rows(labels=lambda n: [-100] * n))]),
        "DataCollatorForSeq2Seq": (own, both, [({}, _rows(labels=lambda n: list(range(n + 1))))]),
        "DataCollatorForLanguageModeling": (own, both, [({}, plain), ({"seed": 3}, masked), ({"mlm": False}, plain)]),
        "DataCollatorForPermutationLanguageModeling": (own, both, [({}, _rows(even=True))]),
        "DataCollatorForMultipleChoice": (own, one, [({}, _choices)]),
        "DataCollatorWithFlattening": (
            {},
            one,
            [({}, lists()), (spread, lists()), ({}, lists(labels=lambda n: [4] * n))],
        ),
        "DefaultDataCollator": (
            {},
            both,
            [({}, _rows(equal=True, label=value)) for value in (lambda n: n % 3 - 1, lambda n: n / 4)],
        ),
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {
            name: [
                (*(getattr(library, name)(**every | of_one | more) for library in (transformers, quadrat)), draw)
                for of_one in frameworks
                for more, draw in choices
            ]
            for name, (every, frameworks, choices) in cases.items()
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
        form = list if lists else forms[int(rng.integers(len(forms)))]
        has_mask, rows = bool(rng.integers(2)), []
        for length in (2 * length if even else length for length in lengths):
            row = {"input_ids": _ids(rng, length)} | ({"attention_mask": [1] * length} if has_mask else {})
            row |= {name: value(length) for name, value in columns.items()}
            rows.append({name: form(value) if type(value) is list and value else value for name, value in row.items()})
        return rows

    return draw


def _choices(rng: np.random.Generator) -> list[Any]:
    lengths = rng.integers(1, 30, (int(rng.integers(1, 5)), 2)).tolist()
    return [{"input_ids": [_ids(rng, one), _ids(rng, other)], "label": one % 2} for one, other in lengths]


def _ids(rng: np.random.Generator, length: int) -> list[int]:
    return rng.integers(len(_SPECIAL), len(_SPECIAL) + _WORDS, length).tolist()  # type: ignore[no-any-return]
