"""`quadrat verify`: drawn batches, made by quadrat and by the installed libraries, compared to the bit and timed."""

import contextlib
import copy
import importlib.util
import logging
import os
import warnings
from argparse import Namespace
from collections.abc import Callable, Iterator
from functools import partial
from time import process_time_ns
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from quadrat.cli import drawn
from quadrat.cli.command import CommandError, console, require, say, table
from quadrat.cli.drawn import Rng, pick
from quadrat.cli.reached import Reached

_BATCHES = 200  # of each collator or function
_TIMED_ROWS, _ROUNDS = 32, 15
_UNCOUNTED = "convert_to_tensors", "trl.pad"  # they make no batches


class Case(NamedTuple):
    """A collator or function, of theirs and quadrat's: of options, what makes a batch."""

    name: str
    row: Any  # of the table of what is imitated
    theirs: Callable[..., Any]
    ours: Callable[..., Any]
    draw: Callable[[Rng], tuple[dict[str, Any], Any]]  # options and features
    usual: Any  # features to time


def run(options: Namespace) -> int:
    """Compare, and print a table; the status is 1 if a batch differs, or no batch ran a line of unknown code."""
    require("this command", {"torch": "transformers", "transformers": "transformers", "rich": "cli"})
    os.environ["QUADRAT_UNTESTED"] = "1"  # all batches are compiled
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    logging.getLogger("quadrat").setLevel(logging.ERROR)  # which batches fall back
    import transformers

    from quadrat.installed import imitated
    from quadrat.integration.table import rows as table_rows
    from quadrat.support.counts import stats

    rng, out, cases = np.random.default_rng(options.seed), console(), list(_cases())
    unknown = {case.row: _unknown(case.row) for case in cases}
    reached = Reached(function for functions in unknown.values() for function in functions)
    differences, rows = dict[str, str](), []
    for case in cases:
        stats(reset=True)
        found = []
        masks = case.name.endswith(("LanguageModeling", "WordMask"))  # the collators with the most options
        for _ in range(_BATCHES * (1 + 2 * masks)):
            with drawn.in_worker() if rng.integers(9) == 0 else contextlib.nullcontext():
                found.append(_difference(case, *case.draw(rng), reached))
        differing = [one for one in found if one is not None]
        compiled = "" if case.row.name in _UNCOUNTED else f"{stats().compiled}"
        differences |= {case.name: differing[0]} if differing else {}
        result = f"{len(differing)} differ" if differing else f"equal, {_times_as_fast(case):.1f} times as fast"
        rows.append((case.name, f"{len(found)}", compiled, result))
    rows += [(name, "", "", "not compared") for name, row in table_rows().items() if row not in unknown]
    say(out, f"Drawn batches of quadrat and of transformers {transformers.__version__}, compared to the bit:")
    out.print(table(("collator or function", "batches", "compiled", "batches of quadrat"), rows))
    for name, difference in differences.items():
        say(out, f"{name}: {difference}")
    lines = {row: {line for one in functions for line in reached.missed(one)} for row, functions in unknown.items()}
    missed = {row: sorted(line for line in found if not line.is_excused) for row, found in lines.items()}
    if not_run := sorted({line for found in missed.values() for line in found}):
        say(out, "No batch ran these lines, of code that quadrat was not tested with. It is not remembered:")
        for line in not_run:
            out.print(f"  {line}")
    if excused := {line for found in lines.values() for line in found if line.is_excused}:
        say(out, f"{len(excused)} more lines raise errors, or are for other frameworks. Such batches fall back.")
    equal = [case.row for case in cases if case.name not in differences and not missed[case.row]]
    known = imitated.remembered()
    keys = {row.name: key for row in equal if unknown[row] and (key := imitated.key_of(row)) is not None}
    if new := {name: key for name, key in keys.items() if key not in known.get(name, ())}:
        if options.remember:
            try:
                say(out, f"{len(new)} of them are known from now on: {imitated.remember(new)}.")
            except OSError as error:
                raise CommandError(f"--remember: {error}") from error
        else:
            say(out, "quadrat was not tested with this code. quadrat verify --remember has it compile such batches.")
    return int(len(equal) < len(cases))


def _unknown(row: Any) -> list[Any]:
    """The functions of a row's reference that quadrat was not tested with."""
    from quadrat.installed import imitated
    from quadrat.installed.fingerprints import functions_of

    codes = [imitated.CODE[name] for name in row.reference if not imitated.is_known(name)]
    return [function for code in codes if code is not None for function in functions_of(code)]


def _difference(case: Case, options: dict[str, Any], features: Any, reached: Reached) -> str | None:
    from quadrat.planning.compared import difference_of

    made: list[Any] = []
    for make in (case.theirs, case.ours):
        with warnings.catch_warnings(), reached:
            warnings.simplefilter("ignore")
            try:
                made.append(make(**options))
            except Exception as error:
                made.append(error)
    theirs, ours = made
    if isinstance(theirs, Exception) or isinstance(ours, Exception):
        return None if type(theirs) is type(ours) else f"{options}: {theirs!r} of the reference and {ours!r} of quadrat"
    return difference_of(theirs, ours, features, meanwhile=reached)


def _times_as_fast(case: Case) -> float:
    """How many times as fast quadrat makes a batch with the usual options: the ratio of medians of processor time."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        calls = [make(**case.usual[0]) for make in (case.theirs, case.ours)]
        times: list[list[int]] = [[], []]
        for _ in range(_ROUNDS):
            for call, taken in zip(calls, times, strict=True):
                features = copy.deepcopy(case.usual[1])  # some are edited
                start = process_time_ns()
                call(features)
                taken.append(process_time_ns() - start)
    torch.set_num_threads(threads)
    return float(np.median(times[0]) / max(np.median(times[1]), 1))


class _Call:
    """A function with its subject and options, as a collator has them."""

    def __init__(self, function: Callable[..., Any], row: Any, subject: Any = None, **options: Any) -> None:
        self._function, self._options, self._imitates = function, options, row
        self.tokenizer = subject

    def __call__(self, features: Any) -> Any:
        subject = () if self.tokenizer is None else (self.tokenizer,)
        return self._function(*subject, features, **self._options)


_PADDED: drawn.Columns = {
    "input_ids": ("ids",),
    "attention_mask": (None, None, "ones", "ones", "bits", "bits", "square"),
    "token_type_ids": (None, None, "bits"),
    "special_tokens_mask": (None, None, "bits"),
}
_LABELS: drawn.Columns = {"label": (None, "int", "float"), "label_ids": (None, None, "int", "float")}
_EXTRA: drawn.Columns = {"extra": (None, None, None, "int", "float", "marks")}
_CLIPS: drawn.Columns = {
    "input_values": ("sound",),
    "attention_mask": (None, None, "ones"),
    "labels": (None, None, "int"),
}
_EXTRACTORS = (True, "right"), (True, "left"), (False, "right")
_SFT: drawn.Columns = {
    "input_ids": ("ids",),
    "labels": (None, "marks"),
    "completion_mask": (None, None, "bits"),
    "seq_lengths": (None, "documents"),
}
_BARE = (  # they take rows of ids, too
    *("DataCollatorForLanguageModeling", "DataCollatorForPermutationLanguageModeling", "DataCollatorForWholeWordMask"),
)
_How: TypeAlias = tuple[drawn.Columns, dict[str, Any], dict[str, Any]]  # columns, options of `lengths` and `features`
_COLLATORS: dict[str, _How] = {
    "DataCollatorWithPadding": (_PADDED | _LABELS | _EXTRA, {}, {}),
    "DataCollatorForTokenClassification": ({**_PADDED, "labels": (None, "marks"), "label": (None, "marks")}, {}, {}),
    "DataCollatorForSeq2Seq": (
        {**_PADDED, **_EXTRA, "labels": (None, "target", "target", "none"), "label": (None, "target")},
        {},
        {},
    ),
    "DataCollatorForLanguageModeling": ({**_PADDED, "offset_mapping": (None, "words")}, {"most": 3000}, {}),
    "DataCollatorForWholeWordMask": ({"input_ids": ("ids",), "chinese_ref": (None, "places")}, {"most": 3000}, {}),
    "DataCollatorForPermutationLanguageModeling": ({"input_ids": ("ids",)}, {"most": 700, "even": True}, {}),
    "DataCollatorForMultipleChoice": (_PADDED, {"choices": 2}, {"choices": 2}),
    "DataCollatorWithFlattening": ({"input_ids": ("ids",), "labels": (None, "marks")}, {}, {}),
    "DefaultDataCollator": ({**_PADDED, **_LABELS, **_EXTRA, "text": (None, "text", "none")}, {"equal": True}, {}),
}


def _cases() -> Iterator[Case]:
    import quadrat
    from quadrat.installed import originals
    from quadrat.installed.behaviour import flattening_takes_arrays

    for name, how in _COLLATORS.items():
        if name == "DataCollatorWithFlattening":
            how[2]["lists"] = not flattening_takes_arrays()
        if name in originals.ORIGINALS:
            yield _collator(name, originals.ORIGINALS[name], getattr(quadrat, name), how)
    yield from _functions()
    if importlib.util.find_spec("trl") is not None:
        yield from _trl()


def _collator(name: str, theirs: Any, ours: Any, how: _How) -> Case:
    columns, of_lengths, of_features = how

    def draw(rng: Rng) -> tuple[dict[str, Any], Any]:
        options, sizes = drawn.options(rng, theirs), of_lengths
        if options.get("whole_word_mask"):  # the reference has no whole words with padding, and quadrat has
            options, sizes = options | {"pad_to_multiple_of": None}, of_lengths | {"equal": True}
        made = drawn.features(rng, columns, drawn.lengths(rng, **sizes), **of_features)
        bare = theirs.__name__ in _BARE and rng.integers(6) == 0
        return options, [row["input_ids"] for row in made if "input_ids" in row] if bare else made

    return Case(name, ours._imitates, theirs, ours, draw, _usual(theirs, how))


def _usual(theirs: Any, how: _How) -> Any:
    columns, of_lengths, of_features = how
    rng, names = np.random.default_rng(0), drawn.defaults(theirs)
    needed = {name: kinds for name, kinds in columns.items() if None not in kinds}
    sizes = [64] * _TIMED_ROWS if "equal" in of_lengths else (2 * rng.integers(4, 33, _TIMED_ROWS)).tolist()
    options = {"tokenizer": drawn.tokenizers()[0]} if "tokenizer" in names else {}
    options |= {"pad_token_id": 0} if "pad_token_id" in names else {}
    return options, drawn.features(rng, needed, sizes, **{**of_features, "lists": True, "broken": 0})


def _functions() -> Iterator[Case]:
    """Functions that quadrat puts in the place of transformers'."""
    from transformers import BatchEncoding, Wav2Vec2FeatureExtractor

    from quadrat.installed import originals
    from quadrat.installed.imitated import TABLE
    from quadrat.planning.conversion import convert_to_tensors
    from quadrat.planning.feature_pad import FeaturePadOptions, feature_pad
    from quadrat.tokenizers.pad import tokenizer_pad

    extractors = [Wav2Vec2FeatureExtractor(return_attention_mask=one, padding_side=side) for one, side in _EXTRACTORS]

    def pad_clips(extractor: Any, clips: Any, **options: Any) -> Any:
        return feature_pad(extractor, clips, options=FeaturePadOptions(**options))

    def function(
        name: str, row: Any, theirs: Any, ours: Any, columns: drawn.Columns, *subjects: Any, **of_lengths: Any
    ) -> Case:
        """A function of a subject, such as a tokenizer, and of features; or of a `BatchEncoding` alone."""

        def draw(rng: Rng) -> tuple[dict[str, Any], Any]:
            rows = drawn.features(rng, columns, drawn.lengths(rng, **of_lengths))
            made = {key: [row[key] for row in rows] for key in (rows[0] if rows else ())}
            one: Any = rows[0] if rows else {}
            none: Any = {key: [] for key in columns}
            choices = (rows, rows, rows, made, BatchEncoding(made), one, none) if subjects else (BatchEncoding(made),)
            subject = {"subject": pick(rng, subjects)} if subjects else {}
            return subject | drawn.options(rng, theirs), pick(rng, choices)

        rows = _usual(theirs, (columns, of_lengths, {}))[1]
        made = rows if subjects else BatchEncoding({key: [row[key] for row in rows] for key in rows[0]})
        usual = ({"subject": subjects[0], "return_tensors": "pt"} if subjects else {"tensor_type": "pt"}), made
        return Case(name, row, partial(_Call, theirs, row), partial(_Call, ours, row), draw, usual)

    rows = _PADDED | _LABELS | _EXTRA
    pads = originals.PAD, tokenizer_pad, rows, *drawn.tokenizers()
    yield function("tokenizer.pad", TABLE["tokenizer_pad"], *pads)
    conversions = originals.CONVERT_TO_TENSORS, convert_to_tensors
    yield function("convert_to_tensors", TABLE["convert_to_tensors"], *conversions, rows, equal=True)
    yield function("feature_extractor.pad", TABLE["feature_pad"], originals.FEATURE_PAD, pad_clips, _CLIPS, *extractors)


def _trl() -> Iterator[Case]:
    import quadrat.trl
    from quadrat.installed.imitated import TABLE

    for name in ("sft", "dpo", "reward", "kto", "tpo"):
        if (module := getattr(quadrat.trl, name)) is None:
            continue
        row = TABLE[f"trl.{name}"]
        ours = next(one for one in vars(module).values() if getattr(one, "_imitates", None) is row)
        made = ours(pad_token_id=0)
        columns: drawn.Columns = {one: ("target",) for rows in getattr(made, "_rows", ()) for one in rows.columns}
        for one in getattr(made, "_numbers", ()):
            columns[one.name] = (None, "float") if one.optional else ("int",)
        yield _collator(f"trl {name}", module.Original, ours, (columns or _SFT, {}, {"lists": True}))
    from trl.trainer.utils import pad

    def draw(rng: Rng) -> tuple[dict[str, Any], Any]:
        rows = drawn.features(rng, {"rows": ("ids",)}, drawn.lengths(rng), broken=0)
        tensors = [torch.as_tensor(row["rows"]) for row in rows]
        return drawn.options(rng, pad), tensors

    import torch

    row = TABLE["trl.pad"]
    usual: Any = {}, [torch.arange(size) for size in range(4, 4 + _TIMED_ROWS)]
    yield Case("trl pad", row, partial(_Call, pad, row), partial(_Call, quadrat.trl.padding.pad, row), draw, usual)
