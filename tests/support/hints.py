"""Mistakes that users make, what quadrat says of each, and what becomes of a batch when its hint is followed.

Code that stands in a message is taken from there and run, so that a hint that does not work fails a test.
"""

import copy
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import transformers
from datasets import Dataset
from torch.utils.data import DataLoader

import quadrat
from quadrat.installed import behaviour
from support import samples
from support.compare import assert_same_batch, check_error, outcome
from support.others import OTHERS

PADDED = [
    "DataCollatorWithPadding",
    "DataCollatorForTokenClassification",
    "DataCollatorForSeq2Seq",
    "DataCollatorForLanguageModeling",
]
BARE = samples.BARE
MASKED = BARE[1:]  # of mappings these take the ids alone
PLAIN, TAGS, SEQ2SEQ, LANGUAGE = ([name] for name in PADDED)
FLAT = ["DataCollatorWithFlattening"]
CHOICE = ["DataCollatorForMultipleChoice"]
STACKED = ["DefaultDataCollator"]
TOKENS = [*PADDED, *MASKED, *FLAT]


class Scene(NamedTuple):
    """A mistake that was made: the collator that refused features, and what quadrat said."""

    collator: Any
    features: Any
    line: str


class Mistake(NamedTuple):
    """A mistake.

    Attributes:
        collators: the names of those that refuse it.
        features: makes it.
        says: parts of the message.
        follow: does what the message says; returns the batch.
        options: of the collator.
    """

    collators: list[str]
    features: Callable[[], Any]
    says: list[str]
    follow: Callable[[Scene], Any]
    options: dict[str, Any] = {}  # noqa: RUF012 - never changed


def cases(mistakes: Mapping[str, Mistake]) -> list[tuple[str, str]]:
    """(mistake, collator), for `pytest.mark.parametrize`."""
    return [(name, collator) for name, mistake in mistakes.items() for collator in mistake.collators]


def check_hint(mistake: Mistake, name: str) -> None:
    """The collator refuses the mistake as the reference does, and its hint helps."""
    if (name, "np") in samples.BATCHES and "return_tensors" not in mistake.options:
        collator, expected, got = _outcomes(mistake, name, return_tensors="np")
        assert got[0] == expected[0]  # NumPy makes arrays of objects
        if got[0] == "raised":
            check_error(expected[1], got, mistake.says)
    collator, expected, got = _outcomes(mistake, name)
    if expected[0] == "returned" and name in FLAT and behaviour.flattening_drops_empty_rows():
        assert_same_batch(expected[1], got[1])  # since then it takes all that can be iterated over
        return
    assert expected[0] == "raised", "the reference takes this"
    line = check_error(expected[1], got, mistake.says)
    kind, batch = outcome(mistake.follow, Scene(collator, mistake.features(), line))
    assert kind == "returned", f"after {line}: {batch!r}"
    assert isinstance(batch, Mapping), batch
    assert len(batch) > 0


def _outcomes(mistake: Mistake, name: str, **extra: Any) -> tuple[Any, tuple[str, Any], tuple[str, Any]]:
    """The collator, and what becomes of the mistake in the reference and in quadrat."""
    options = {**mistake.options, **extra}
    expected = outcome(lambda batch: reference_of(name, **options)(batch), mistake.features())  # noqa: PLW0108 - may raise
    # quadrat's flattening is the newest one on all versions
    if name in FLAT and expected[0] == "raised" and not behaviour.flattening_takes_arrays():
        expected = "raised", None
    collator = OTHERS[name].ours(**options) if name in OTHERS else samples.make(quadrat, name, **options)
    return collator, expected, outcome(collator, mistake.features())


def reference_of(name: str, **options: Any) -> Any:
    """The reference's collator, as `samples.make`."""
    if name in OTHERS:
        return OTHERS[name].reference(**options)
    return samples.make(transformers, name, **options)


def code(line: str, pattern: str) -> str:
    match = re.search(pattern, line)
    assert match is not None, f"{pattern} is not in: {line}"
    return match[1]


def run(source: str, **names: Any) -> Any:
    return eval(source, {**vars(quadrat), **{name: getattr(quadrat, name) for name in quadrat.__all__}, **names})


def runs(pattern: str) -> Callable[[Scene], Any]:
    """Do: run the code of the message, which gives the batch, or a loader of batches."""

    def follow(scene: Scene) -> Any:
        features = scene.features
        names: dict[str, Any] = dict.fromkeys(("features", "dataset", "example", "text"), features)
        names |= {"collator": scene.collator, "tokenizer": samples.tokenizer(), "DataLoader": DataLoader}
        result = run(code(scene.line, pattern), **names)
        return next(iter(result)) if isinstance(result, DataLoader) else result

    return follow


def gives(change: Callable[[Any], Any]) -> Callable[[Scene], Any]:
    return lambda scene: scene.collator(change(scene.features))


def uses(pattern: str, change: Callable[[Any], Any] = lambda features: features) -> Callable[[Scene], Any]:
    """Do: give the features to the collator that the message names."""

    def follow(scene: Scene) -> Any:
        collator = run(code(scene.line, pattern), tokenizer=samples.tokenizer())
        instance = collator(samples.tokenizer()) if isinstance(collator, type) else collator
        return instance(change(scene.features))

    return follow


def sets(option: str, pattern: str) -> Callable[[Scene], Any]:
    """Do: set an option to the value in the message."""

    def follow(scene: Scene) -> Any:
        setattr(scene.collator, option, run(code(scene.line, pattern)))
        return scene.collator(scene.features)

    return follow


def numbers(column: str, *classes: str) -> Callable[[Scene], Any]:
    """Do: number the labels of the whole dataset, which has more classes than the batch, as the message says."""

    def follow(scene: Scene) -> Any:
        inside = isinstance(scene.features[0][column], list)
        whole = [*scene.features, *({column: [label] if inside else label} for label in classes)]
        names = run(code(scene.line, r"names = (sorted\(.*?\)), then"), dataset=whole)
        assert set(classes) <= set(names)
        place = code(scene.line, r", then (names\.index\(.*?\))(?: for each)?$")
        number = each(lambda label: run(place, names=names, label=label, row={column: label}), column)
        if inside:
            number = each(lambda labels: [run(place, names=names, label=label) for label in labels], column)
        else:
            encoded = run(code(scene.line, r"(dataset\.class_encode_column\(.*?\))"), dataset=Dataset.from_list(whole))
            assert encoded.features[column].names == names
            scene.collator([dict(row) for row in encoded.select(range(len(scene.features)))])
        return scene.collator(number(scene.features))

    return follow


def rows(*lengths: int, **columns: Callable[[int], Any]) -> list[dict[str, Any]]:
    """Features of these lengths, with an attention mask and extra columns."""
    return [
        {
            "input_ids": list(range(5, 5 + n)),
            "attention_mask": [1] * n,
            **{name: column(n) for name, column in columns.items()},
        }
        for n in lengths
    ]


def each(change: Callable[[Any], Any], name: str | None = None) -> Callable[[Any], Any]:
    """`change` for each value of one column, or of all."""
    return lambda features: [
        {key: change(value) if name in (None, key) else value for key, value in feature.items()} for feature in features
    ]


def without(name: str) -> Callable[[Any], Any]:
    return lambda features: [{key: value for key, value in row.items() if key != name} for row in features]


def hint(collators: list[str], features: Any, says: str, follow: Callable[[Scene], Any], **options: Any) -> Mistake:
    """A mistake in short. features: as they are, or what makes them. says: parts of the message, between bars."""
    factory = features if callable(features) else lambda: copy.deepcopy(features)
    return Mistake(collators, factory, says.split(" | "), follow, options)


def wrong_option(collators: list[str], option: str, wrong: Any, right: str, says: str, **columns: Any) -> Mistake:
    """An option with a wrong value. right: the pattern of the value in the message."""
    return hint(collators, lambda: rows(4, 2, **columns), says, sets(option, right), **{option: wrong})


def wrong_values(collators: list[str], wrong: Any, right: Any, says: str) -> Mistake:
    """Columns whose values `wrong` has made of lists. right: what the message does with each."""
    return hint(collators, lambda: each(wrong)(rows(4, 2)), says, gives(each(right)))


def useless_column(collators: list[str], name: str, column: Callable[[int], Any], says: str) -> Mistake:
    """A column that the message removes from the data set."""
    removes = f"{says} | dataset.remove_columns('{name}')"
    return hint(collators, lambda: rows(4, 4, **{name: column}), removes, gives(without(name)))


def labelled(collators: list[str], labels: Callable[[int], Any], says: str, follow: Callable[[Scene], Any]) -> Mistake:
    """Labels that do not go. labels: makes those of a row of n tokens."""
    return hint(collators, lambda: rows(4, 2, labels=labels), says, follow)


def bad_row(collators: list[str], place: int, row: Any, says: str) -> Mistake:
    """A row among others that the message leaves out."""
    good = rows(4, 4)
    return hint(collators, lambda: [*good[:place], row, *good[place:]], says, gives(lambda _: good))


def given_as(collators: list[str], features: Callable[[], Any], says: str) -> Mistake:
    """Features that are no rows; the message asks for a list of them."""
    return hint(collators, features, says, gives(lambda _: rows(4, 4)))
