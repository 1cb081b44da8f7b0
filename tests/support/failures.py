"""Every kind of batch that cannot be made: calls that raise, for tests of leaks and of what is left by an error."""

import functools
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

import quadrat
from quadrat.input.rows import rows_of
from support import arrow_parts, damaged_arrow, samples
from support.mappings import Lazy, Lookalike
from support.strategies import make_tokenizer

Change = Callable[[list[dict[str, Any]]], Any]


def in_last(**columns: Any) -> Change:
    return lambda rows: [*rows[:-1], {**rows[-1], **columns}]


def in_all(name: str, value: Callable[[int], Any]) -> Change:
    return lambda rows: [{**row, name: value(number)} for number, row in enumerate(rows)]


def raises(error: type[BaseException]) -> Callable[[], None]:
    def act() -> None:
        raise error("raised")

    return act


def without_first_column(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    first = next(iter(rows[0]))
    return [*rows[:-1], {name: value for name, value in rows[-1].items() if name != first}]


def with_a_key_that_raises(row: dict[str, Any]) -> dict[Any, Any]:
    """A feature that raises when it is looked for `input_ids`."""
    act = raises(KeyboardInterrupt)
    armed: list[bool] = []
    feature = {Lookalike("input_ids", lambda: act() if armed else None): [[0]], **row}
    armed.append(True)
    return feature


# What is wrong with the features of every collator.
CHANGES: dict[str, Change] = {
    "None in a row": in_last(input_ids=[5, 6, 7, 8, 9, None]),
    "text in a row": in_last(input_ids=[5, 6, 7, 8, 9, "x"]),
    "an int beyond int64": in_last(input_ids=[5, 6, 7, 8, 9, 2**64]),
    "a list in a row": in_last(input_ids=[5, 6, 7, 8, 9, [6]]),
    "None in place of a row": in_last(input_ids=None),
    "a number in place of a row": in_last(input_ids=3),
    "an array of objects": in_last(input_ids=np.array([5, None])),
    "a tensor of two dimensions": in_last(input_ids=torch.ones(2, 2)),
    "a missing column": without_first_column,
    "a ragged column": in_all("words", lambda row: [1] * (row + 1)),
    "a mask of another length": in_last(attention_mask=[1]),
    "a column of text": in_all("text", lambda row: "text"),
    "labels of another length": in_all("labels", lambda row: [1] * (20 + row)),
    "labels that are None": lambda rows: in_last(labels=None)(in_all("labels", lambda row: [1])(rows)),
    "special_tokens_mask that is too short": in_all("special_tokens_mask", lambda row: [0]),
    "a batch without rows": lambda rows: [],
    "features that are no mappings": lambda rows: [1, "a", None],
    "no list of features": lambda rows: 7,
    "ValueError in the user's mapping": lambda rows: [*rows[:-1], Lazy(rows[-1], raises(ValueError))],
    "KeyboardInterrupt in the user's mapping": lambda rows: [*rows[:-1], Lazy(rows[-1], raises(KeyboardInterrupt))],
    "MemoryError in the user's mapping": lambda rows: [*rows[:-1], Lazy(rows[-1], raises(MemoryError))],
    "KeyboardInterrupt in a key": lambda rows: [*rows[:-1], with_a_key_that_raises(rows[-1])],
}


def calls_that_raise(calls: list[Callable[[], Any]]) -> list[Callable[[], Any]]:
    """Those that raise, each after a few calls, by which it takes the way of known batches."""
    return [call for call in calls if all(raised(call) is not None for _ in range(3))]


def raised(call: Callable[[], Any]) -> type[BaseException] | None:
    try:
        call()
    except BaseException as error:
        return type(error)
    return None


def of_features() -> Iterator[tuple[str, list[Callable[[], Any]]]]:
    """By mistake: the collators that refuse such features, with both frameworks."""
    known: list[tuple[str, Any]] = []
    for name, framework in samples.BATCHES:
        collator = samples.make(quadrat, name, return_tensors=framework)
        collator(samples.batch(name))
        known.append((name, collator))
    for mistake, change in CHANGES.items():
        calls = [functools.partial(collator, change(samples.batch(name))) for name, collator in known]
        yield mistake, calls_that_raise(calls)


def of_options() -> Iterator[tuple[str, list[Callable[[], Any]]]]:
    """By mistake: collators with options that do not go."""
    padded = ["DataCollatorWithPadding", "DataCollatorForTokenClassification", "DataCollatorForSeq2Seq"]
    options: dict[str, tuple[list[str], dict[str, Any]]] = {
        "rows longer than max_length": (padded, {"padding": "max_length", "max_length": 2}),
        "rows that are not padded": (padded, {"padding": False}),
        "an unknown framework": (samples.CLASSES, {"return_tensors": "xy"}),
    }
    for mistake, (names, wrong) in options.items():
        calls = [functools.partial(samples.make(quadrat, name, **wrong), samples.batch(name)) for name in names]
        yield mistake, calls_that_raise(calls)
    tokenizer = make_tokenizer(pad_token=None)
    lacking = [functools.partial(getattr(quadrat, name)(tokenizer), samples.batch(name)) for name in padded]
    yield "no pad token", calls_that_raise(lacking)
    odd = samples.make(quadrat, "DataCollatorForPermutationLanguageModeling")
    yield "rows of odd length, permuted", calls_that_raise([lambda: odd([{"input_ids": [1, 2, 3]}])])
    words = samples.make(quadrat, "DataCollatorForLanguageModeling", whole_word_mask=True)
    rows = [{"input_ids": [5, 6, 7], "offset_mapping": [(0, 1)]}, {"input_ids": [5], "offset_mapping": [(0, 1)]}]
    yield "offsets of too few tokens", calls_that_raise([lambda: words(rows)])


def of_functions() -> Iterator[tuple[str, list[Callable[[], Any]]]]:
    """By mistake: functions, and damaged tables."""
    padded, collator = torch.ones(2, 3, dtype=torch.int64), quadrat.DataCollatorWithPadding(samples.tokenizer())
    calls: dict[str, list[Callable[[], Any]]] = {
        "functions: rows of another type": [
            lambda: quadrat.pad([[1], ["x"]]),
            lambda: quadrat.flatten([[1], [None]]),
            lambda: quadrat.Ragged.from_rows([[1], {}]),
            lambda: quadrat.lengths([[1], None]),
        ],
        "functions: numbers that do not go": [
            lambda: quadrat.pad([[1, 2]], max_length=1),
            lambda: quadrat.unpad(padded, lengths=[5, 1]),
            lambda: quadrat.Ragged(np.arange(3), np.array([0, 9])),
            lambda: quadrat.batching.plan_packs([5, 7], 6),
            lambda: quadrat.mask_tokens(padded, mask_token_id=3, vocab_size=0),
            lambda: quadrat.evaluation.concat_padded([padded, padded.float()]),
            lambda: quadrat.TokenBudgetBatchSampler([5, 7], 6),
        ],
        "Arrow: damaged tables": [functools.partial(read, damage) for damage in damaged_arrow.DAMAGES],
    }
    for damage in ("offsets that fall", "offsets beyond the values"):
        sample = damaged_arrow.damaged(damage)
        rows = rows_of(sample.source)
        calls[f"Arrow: {damage}"] = [lambda rows=rows, _=sample: collator(rows)]  # it owns the memory
    yield from ((mistake, calls_that_raise(of)) for mistake, of in calls.items())


def read(damage: str) -> Any:
    sample = damaged_arrow.damaged(damage)  # owns the memory
    arrow_parts.forget_released()
    return list(rows_of(sample.source))


def everything() -> list[tuple[str, list[Callable[[], Any]]]]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [*of_features(), *of_options(), *of_functions()]
