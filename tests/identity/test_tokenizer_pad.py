"""tokenizer_pad == tokenizer.pad of the installed transformers, in every form it takes."""

import contextlib
import copy
import functools
import gc
import itertools
import pickle
import weakref
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import BatchEncoding, PreTrainedTokenizerFast
from transformers.utils import PaddingStrategy, TensorType

import quadrat
from quadrat.tokenizers import pad as module
from support.compare import assert_same_outcome, default_dtype, outcome
from support.forms import columns_of, forms, observed
from support.strategies import PadsInItsOwnWay, features, make_tokenizer, tokenizers

OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "padding": st.sampled_from(
            [True] * 3 + ["longest", "max_length", False, "do_not_pad", "wrong", *PaddingStrategy, 1, None]
        ),
        "max_length": st.sampled_from([None, None, 4, 9, 9.0]),
        "pad_to_multiple_of": st.sampled_from([None] * 3 + [1, 4, 8, True, 0]),
        "padding_side": st.sampled_from([None, "right", "left", "left", "middle"]),
        "return_attention_mask": st.sampled_from([None, None, True, False, 1]),
        "return_tensors": st.sampled_from(["pt"] * 3 + ["np"] * 2 + [None] * 2 + ["wrong", *TensorType]),
        "verbose": st.booleans(),
    },
)


FORMS = forms(BatchEncoding)


@st.composite
def encoded(draw: Any) -> Any:
    equal = draw(st.integers(0, 3)) == 0
    rows = draw(features(equal=equal, labels=draw(st.sampled_from([None, "labels"]))))
    form = FORMS[draw(st.sampled_from(["list"] * 4 + ["columns"] * 3 + ["stacked"] * equal * 4 + sorted(FORMS)))]
    try:
        return form(rows)
    except Exception:  # rows that are no mappings, or lack a column
        return rows


# torch's words on memory it may not write to, and on gradients (once in a process), and NumPy 1's on how torch reads
# its bools: quadrat reads them itself.
UNSAID = ("non-writable", "requires_grad=True to a scalar", "scalars to be interpreted as an index")


def said(error: Exception) -> str:
    return str(error.args[0]) if len(error.args) == 1 else str(error)


def assert_same(tokenizer: Any, inputs: Any, options: dict[str, Any], *, pad: Any = None, calls: int = 2) -> None:
    pad = quadrat.tokenizers.tokenizer_pad if pad is None else pad
    state = tokenizer.deprecation_warnings
    state.clear()
    for _ in range(calls):
        before = dict(state)
        expected, besides = observed(lambda batch: tokenizer.pad(batch, **options), copy.deepcopy(inputs), UNSAID)
        after = dict(state)
        state.clear(), state.update(before)
        got, ours = observed(lambda batch: pad(tokenizer, batch, **options), copy.deepcopy(inputs), UNSAID)
        assert_same_outcome(expected, got)
        assert ours == besides
        assert state == after
        if expected[0] == "raised":
            assert said(got[1]).startswith(said(expected[1]))


@given(tokenizers(), encoded(), OPTIONS)
def test_every_form(tokenizer, inputs, options):
    assert_same(tokenizer, inputs, options, calls=3)


TOKENS = [
    {"input_ids": [3, 4, 5], "token_type_ids": [0, 0, 1], "label": 1},
    {"input_ids": [6], "token_type_ids": [1], "label": 0},
]


def _as(rows: Any, make: Any) -> Any:
    return [{name: make(value) if isinstance(value, list) else value for name, value in row.items()} for row in rows]


UNEVEN = {"input_ids": [[3], [4, 5]], "token_type_ids": [[0]]}
NOTHING = [[], (), {}, {"input_ids": []}, {"input_ids": None}, None, "text", [[1, 2]], [1], 5, UNEVEN]


@pytest.mark.parametrize("inputs", NOTHING)
@pytest.mark.parametrize("mask", [None, True])
def test_no_rows(inputs, mask):
    assert_same(make_tokenizer(), inputs, {"return_tensors": "pt", "return_attention_mask": mask})


def test_a_mask_of_more_dimensions_is_taken_out_as_the_reference_does():
    masks = [torch.ones(1, 2, 2, dtype=torch.int64)] * 2
    assert_same(make_tokenizer(), {"input_ids": [[3, 4], [5, 6]], "attention_mask": masks}, {"return_tensors": "pt"})


@pytest.mark.parametrize("framework", ["pt", "np", None])
def test_tensors_that_the_kernels_do_not_read(framework):
    dense = torch.tensor([[3, 4], [5, 0]])
    jagged = torch.nested.nested_tensor([torch.tensor([3, 4]), torch.tensor([5])], layout=torch.jagged)
    for rows in (dense.to_sparse(), dense.float().requires_grad_(), jagged, dense.T, dense.to("meta"), dense[0]):
        for inputs in ({"input_ids": rows}, {"input_ids": dense, "token_type_ids": rows}):
            options = {"return_tensors": framework}
            expected = outcome(functools.partial(make_tokenizer().pad, **options), dict(inputs))
            got = outcome(
                functools.partial(quadrat.tokenizers.tokenizer_pad, make_tokenizer(), **options), dict(inputs)
            )
            assert_same_outcome(expected, got)


@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.uint16, np.float16, np.float32, np.bool_])
def test_columns_of_numbers_beside_arrays_become_python_numbers(dtype):
    labels = np.array([1, 0]).astype(dtype)
    for rows in (np.array([[3, 4], [5, 6]]), [[3, 4], [5]], [np.array([3, 4]), np.array([5])]):
        for column in (labels, list(labels), torch.tensor([1, 0]), [torch.tensor(1), torch.tensor(0)]):
            for framework in ("np", "pt", None):
                assert_same(make_tokenizer(), {"input_ids": rows, "label": column}, {"return_tensors": framework})


def test_known_batches_do_not_ask_the_reference(monkeypatch):
    tokenizer, calls = make_tokenizer(), []
    first = quadrat.tokenizers.tokenizer_pad(tokenizer, TOKENS, return_tensors="pt")
    monkeypatch.setattr(module.Padded, "of", lambda *_, **__: calls.append(1))
    monkeypatch.setattr(module.originals, "PAD", lambda *_, **__: calls.append(1))
    again = quadrat.tokenizers.tokenizer_pad(tokenizer, TOKENS, return_tensors="pt")
    columns = quadrat.tokenizers.tokenizer_pad(tokenizer, columns_of(TOKENS), return_tensors="pt")
    arrays = quadrat.tokenizers.tokenizer_pad(tokenizer, _as(TOKENS, list), return_tensors=TensorType.PYTORCH)
    assert not calls
    for batch in (again, columns, arrays):
        assert_same_outcome(("returned", first), ("returned", batch))


@pytest.mark.parametrize("patched", [False, True])
@pytest.mark.parametrize(
    "inputs",
    [
        [{"input_ids": [5, 6]}, {"input_ids": [7]}],
        {"input_ids": [[5, 6], [7]]},
        BatchEncoding({"input_ids": [[5, 6], [7]]}),
        [BatchEncoding({"input_ids": [5]})],
        {"input_ids": [5, 6]},
    ],
)
def test_lists_that_stay_lists_go_straight_to_the_reference(monkeypatch, inputs, patched):
    """There is nothing to gain: what is looked at before costs more than a small batch."""
    tokenizer, options = make_tokenizer(), {"padding": "max_length", "max_length": 4, "padding_side": "left"}
    expected = tokenizer.pad(copy.deepcopy(inputs), **options)
    for later in ("reference_is_running", "by_lists", "warns_of_fast", "_inputs_of"):
        monkeypatch.setattr(module, later, None)
    with quadrat.tokenizers.patch_tokenizers() if patched else contextlib.nullcontext():
        pad = tokenizer.pad if patched else functools.partial(quadrat.tokenizers.tokenizer_pad, tokenizer)
        batch = pad(copy.deepcopy(inputs), **options)
    assert (type(batch), batch.data) == (type(expected), expected.data)


def test_what_changes_about_a_tokenizer_is_seen():
    tokenizer, options = make_tokenizer(), {"return_tensors": "pt"}
    assert_same(tokenizer, TOKENS, options)
    tokenizer.padding_side = "left"
    assert_same(tokenizer, TOKENS, options)
    tokenizer.pad_token = "w9"
    assert_same(tokenizer, TOKENS, options)
    tokenizer.model_input_names = ["input_ids"]
    assert_same(tokenizer, TOKENS, options)
    tokenizer.model_input_names.append("attention_mask")
    assert_same(tokenizer, TOKENS, options)
    with default_dtype(torch.float64):
        assert_same(tokenizer, [{**row, "label": 0.5} for row in TOKENS], options)
    tokenizer.__class__ = PadsInItsOwnWay
    assert_same(tokenizer, TOKENS, options)
    assert "extra_mask" in quadrat.tokenizers.tokenizer_pad(tokenizer, TOKENS, **options)


def test_a_method_of_the_tokenizer_itself_is_called():
    class Own(PreTrainedTokenizerFast):
        def pad(self, *args: Any, **kwargs: Any) -> Any:
            return "class", super().pad(*args, **kwargs)

    own_tokenizer = make_tokenizer(cls=Own)
    assert quadrat.tokenizers.tokenizer_pad(own_tokenizer, TOKENS)[0] == "class"
    with quadrat.tokenizers.patch_tokenizers():
        kind, batch = own_tokenizer.pad(TOKENS, return_tensors="pt")
    assert kind == "class"
    assert batch["input_ids"].tolist() == [[3, 4, 5], [6, 0, 0]]
    tokenizer = make_tokenizer()
    tokenizer.pad = lambda *_: "instance"
    assert quadrat.tokenizers.tokenizer_pad(tokenizer, TOKENS) == "instance"


def test_a_tokenizer_is_not_kept_alive():
    tokenizer = make_tokenizer()
    quadrat.tokenizers.tokenizer_pad(tokenizer, TOKENS, return_tensors="pt")
    known, seen = id(tokenizer), weakref.ref(tokenizer)
    assert known in {identity for identity, *_ in module._known}
    del tokenizer
    gc.collect()
    assert seen() is None
    assert known not in {identity for identity, *_ in module._known}


def test_what_is_remembered_is_bounded():
    kept = [make_tokenizer() for _ in range(3)]
    for tokenizer, multiple in itertools.product(kept, range(1, module._MOST_METHODS // 2)):
        options = {"return_tensors": "np", "pad_to_multiple_of": multiple}
        quadrat.tokenizers.tokenizer_pad(tokenizer, TOKENS, **options)
        assert len(module._known) <= module._MOST_METHODS
    assert_same(kept[0], TOKENS, {"return_tensors": "np", "pad_to_multiple_of": 1})


def test_the_tokenizer_is_left_as_it_was():
    tokenizer = make_tokenizer()
    before = set(vars(tokenizer))
    pickled = pickle.dumps(tokenizer)
    quadrat.tokenizers.tokenizer_pad(tokenizer, TOKENS, return_tensors="pt")
    assert set(vars(tokenizer)) == before
    assert pickle.dumps(tokenizer) == pickled


def test_rows_of_an_arrow_table_are_read_in_place():
    pyarrow = pytest.importorskip("pyarrow")
    from quadrat.input.rows import rows_of

    table = pyarrow.Table.from_pylist(TOKENS)
    expected = make_tokenizer().pad(TOKENS, return_tensors="pt")
    rows = rows_of(table)
    got = quadrat.tokenizers.tokenizer_pad(make_tokenizer(), rows, return_tensors="pt")
    assert not rows.handed_out
    assert_same_outcome(("returned", expected), ("returned", got))
    lists = quadrat.tokenizers.tokenizer_pad(make_tokenizer(), rows_of(table))
    assert_same_outcome(("returned", make_tokenizer().pad(TOKENS)), ("returned", lists))
