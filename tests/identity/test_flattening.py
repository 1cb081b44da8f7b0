"""DataCollatorWithFlattening == that of transformers 5.23, as far as the installed one is like it."""

import inspect
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from hypothesis import given
from hypothesis import strategies as st

import quadrat
from support.compare import assert_identical, assert_same_batch, assert_same_outcome, both, outcome
from support.strategies import WRAPPERS, row_columns

NAME = "DataCollatorWithFlattening"
# Older versions know neither rows that are arrays, 4.x, nor where positions start, before 5.15.
TAKES_ARRAYS = outcome(transformers.DataCollatorWithFlattening(), [{"input_ids": np.ones(2, int)}])[0] == "returned"
TAKES_A_START = "position_ids_start" in inspect.signature(transformers.DataCollatorWithFlattening.__init__).parameters

FLAGS = {
    "return_position_ids": st.booleans(),
    "return_flash_attn_kwargs": st.booleans(),
    "return_seq_idx": st.booleans(),
    "separator_id": st.sampled_from([-100] * 6 + [0, 7, -1, 2**40, 2**63, True, -1.5, None, "x", np.int64(3)]),
    "return_tensors": st.sampled_from(["pt"] * 4 + ["np"] * 4 + ["wrong", None]),
}
STARTS = st.sampled_from([0] * 4 + [2, 2, -3, 2**62, 2**63 - 3, 2**63, True, 0.5, "x", None, np.int32(2)])
OPTIONS = st.fixed_dictionaries({}, optional={**FLAGS, "position_ids_start": STARTS} if TAKES_A_START else FLAGS)
CALLS = st.fixed_dictionaries(
    {},
    optional={"return_tensors": st.sampled_from(["pt", "np", "wrong"]), "separator_id": st.sampled_from([-1, 5, 1.5])},
)
ODD = [None, "text", 3, 2.5, (1, 2), [1, None], ["x"], [1, 2**63], [[1], [2]], [1, True], [0.5, 1], [np.int64(3), 1]]


@st.composite
def batches(draw: Any, *, forms: tuple[str, ...] = ("list", "list", "array", "tensor")) -> list[Any]:
    """Rows to flatten, labels or none, other columns, and sometimes something wrong."""
    count = draw(st.integers(1, 6))
    shortest = draw(st.sampled_from([0, 1, 1, 1]))
    lengths = draw(st.lists(st.integers(shortest, 9), min_size=count, max_size=count))
    columns = {"input_ids": draw(_rows(lengths, forms))}
    if draw(st.booleans()):
        other = draw(st.integers(0, 4)) == 0
        sizes = draw(st.lists(st.integers(0, 9), min_size=count, max_size=count)) if other else lengths
        columns["labels"] = draw(_rows(sizes, forms))
    if draw(st.booleans()):
        columns["attention_mask"] = [[1] * length for length in lengths]
    if draw(st.integers(0, 4)) == 0:
        columns["label"] = [1] * count
    if draw(st.integers(0, 5)) == 0:
        name, row = draw(st.sampled_from(sorted(columns))), draw(st.integers(0, count - 1))
        columns[name][row] = draw(st.sampled_from(ODD))
    names = draw(st.permutations(sorted(columns)))
    rows = [{name: columns[name][row] for name in names} for row in range(count)]
    if draw(st.integers(0, 12)) == 0:
        rows[draw(st.integers(0, count - 1))].pop(draw(st.sampled_from(names)))
    wrapper = WRAPPERS[draw(st.sampled_from(["dict"] * 4 + sorted(WRAPPERS)))]
    return [wrapper(row) for row in rows]


@st.composite
def _rows(draw: Any, lengths: list[int], forms: tuple[str, ...]) -> list[Any]:
    form = draw(st.sampled_from([*forms * 3, "tuple"] if "tuple" in forms else forms))
    element = draw(st.sampled_from(["int"] * 6 + ["small", "bool", "float"]))
    if "array" in forms:
        return draw(row_columns(lengths, form, element))  # type: ignore[no-any-return]
    numbers = {"int": st.integers(-5, 2**40), "small": st.integers(0, 1), "bool": st.booleans(), "float": st.floats()}
    return [draw(st.lists(numbers[element], min_size=n, max_size=n).map(_FORMS[form])) for n in lengths]


_FORMS = {"list": list, "tuple": tuple}


def call(collator: Any, arguments: dict[str, Any]) -> Any:
    return lambda rows: collator(rows, **arguments)


ROWS = batches() if TAKES_ARRAYS else batches(forms=("list", "tuple"))


@given(ROWS | batches(forms=("list", "tuple")), OPTIONS, CALLS, st.sampled_from([list, list, tuple]))
def test_flattens_as_the_reference(batch, options, arguments, container):
    reference, collator = both(NAME, **options)
    assert_identical(call(reference, arguments), call(collator, arguments), container(batch))


CHANGES: dict[str, Any] = {
    "nothing": lambda collator: None,
    "separator": lambda collator: setattr(collator, "separator_id", -1),
    "no positions": lambda collator: setattr(collator, "return_position_ids", False),
    "sequences": lambda collator: setattr(collator, "return_seq_idx", True),
    "bounds": lambda collator: setattr(collator, "return_flash_attn_kwargs", True),
    "numpy": lambda collator: setattr(collator, "return_tensors", "np"),
    "keys in place": lambda collator: (
        collator._int_64_keys.discard("labels"),
        collator._batch_dim_keys.discard("seq_idx"),
    ),
    "other keys": lambda collator: setattr(collator, "_batch_dim_keys", {"input_ids"}),
}


@given(st.lists(st.tuples(batches(forms=("list",)), st.sampled_from(sorted(CHANGES))), min_size=2, max_size=6), OPTIONS)
def test_changes_between_batches(steps, options):
    reference, collator = both(NAME, **options)
    for batch, change in steps:
        assert_identical(reference, collator, batch)
        CHANGES[change](reference), CHANGES[change](collator)
    assert_identical(reference, collator, steps[0][0])


def listed(batch: list[Any]) -> list[dict[str, Any]]:
    """The same rows as plain dicts of lists, which every version joins alike."""
    return [
        {name: row[name].tolist() if hasattr(row[name], "tolist") else row[name] for name in row.keys()}  # noqa: SIM118
        for row in batch
    ]


@given(batches(), st.fixed_dictionaries({}, optional=FLAGS), st.integers(-3, 3))
def test_arrays_are_lists_and_starts_are_added_on_every_version(batch, options, start):
    reference, collator = both(NAME, **options)
    collator.position_ids_start = start
    kind, expected = outcome(reference, listed(batch))
    if kind == "returned" and "position_ids" in expected:
        expected["position_ids"] += start
    assert_same_outcome((kind, expected), outcome(collator, batch))


@pytest.mark.parametrize("return_position_ids", [True, False])
def test_of_two_errors_the_first_row_s_is_raised(return_position_ids):
    batch = [{"input_ids": None, "labels": [1]}, {"labels": [1]}]
    reference, collator = both(NAME, return_position_ids=return_position_ids)
    assert_identical(reference, collator, batch)
    with pytest.raises(TypeError):
        quadrat.DataCollatorWithFlattening(align_to=2)(batch)


ARRAYS = {
    "list": list,
    "array": np.array,
    "tensor": torch.tensor,
    "float tensor": lambda row: torch.tensor(row, dtype=torch.float32),
    "numbers of numpy": lambda row: [np.int64(number) for number in row],
}


@pytest.mark.parametrize("framework", ["pt", "np"])
@pytest.mark.parametrize("form", sorted(ARRAYS))
def test_knows_its_rows(form, framework):
    """Only rows that are not ints fall back."""
    features = [{"input_ids": ARRAYS[form](row), "labels": ARRAYS[form](row)} for row in ([1, 2, 3], [4], [300, 5])]
    options = {"return_seq_idx": True, "return_flash_attn_kwargs": True, "return_tensors": framework}
    reference, collator = both(NAME, **options)
    assert_same_batch(reference(listed(features)), collator(features))
    assert bool(vars(collator).get("_quadrat_fell_back")) == (form in ("float tensor", "numbers of numpy"))


def test_cumulative_lengths_are_two_tensors():
    reference, collator = both(NAME, return_flash_attn_kwargs=True)
    for flattens in (reference, collator):
        batch = flattens([{"input_ids": [1, 2]}])
        assert batch["cu_seq_lens_q"].data_ptr() != batch["cu_seq_lens_k"].data_ptr()


def test_is_a_dataclass_like_the_reference():
    reference, collator = both(NAME, return_tensors="np", separator_id=3)
    assert repr(collator) == repr(reference)
    assert collator == quadrat.DataCollatorWithFlattening("np")
    assert isinstance(collator, transformers.DataCollatorWithFlattening)
    for name, value in vars(reference).items():
        assert vars(collator)[name] == value
