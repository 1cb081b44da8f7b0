"""How a Ragged shows itself, and what it says of itself: text, a table, sizes, and where it becomes an array."""

import html
import inspect

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given

import quadrat
from quadrat import Ragged
from support.ragged import KINDS, LIBRARIES, ROWS, TRAILING, ragged


@given(rows=ROWS, library=st.sampled_from(sorted(LIBRARIES)), kind=st.sampled_from(KINDS), trailing=TRAILING)
def test_whatever_it_holds_it_can_be_shown(rows, library, kind, trailing):
    made, values = ragged(rows, library, kind, trailing)
    facts = f"{len(rows)} rows, {len(values)} tokens, {made.dtype}"
    assert repr(made).startswith("Ragged([")
    assert repr(made).endswith(f"], {facts})")
    assert made._repr_html_().startswith(f"<table><caption>Ragged: {facts}</caption>")
    assert (made.total, made.max_length) == (len(values), max(map(len, rows), default=0))
    assert made.inner_shape == tuple(trailing)
    assert made.dtype == made.values.dtype


def test_few_rows_and_numbers_are_shown():
    made = Ragged.from_rows([list(range(n)) for n in range(9, 300)])
    lines = repr(made).splitlines()
    assert len(lines) == 7
    assert lines[0] == "Ragged([[0, 1, 2, 3, ..., 5, 6, 7, 8],"
    assert lines[3].strip() == "...,"
    assert lines[6].endswith(f"298]], 291 rows, {sum(range(9, 300))} tokens, int64)")
    assert made._repr_html_().count("<tr>") == 8


@pytest.mark.parametrize(
    ("made", "text"),
    [
        (Ragged.from_rows([[1, 2, 3], [7]]), "Ragged([[1, 2, 3],\n        [7]], 2 rows, 4 tokens, int64)"),
        (Ragged.from_rows([]), "Ragged([], 0 rows, 0 tokens, int64)"),
        (Ragged(np.zeros((2, 3)), np.array([0, 2])), "Ragged([<2 x 3>], 1 rows, 2 tokens, float64)"),
        (
            Ragged(torch.tensor([0.5], dtype=torch.bfloat16, requires_grad=True), torch.tensor([0, 1])),
            "Ragged([[0.5]], 1 rows, 1 tokens, torch.bfloat16)",
        ),
    ],
)
def test_it_reads_like_this(made, text):
    assert repr(made) == text


def test_a_row_that_is_never_read_as_a_whole():
    """Its ends are shown; the middle is on a disk, say."""

    class Watched(np.ndarray):
        def __array_finalize__(self, other):
            if other is not None and other.ndim == 1 and 20 < self.size < 1_000_000:
                raise AssertionError("a long part was copied")

    values = np.zeros(1_000_000, np.int8).view(Watched)
    assert repr(Ragged(values, np.array([0, 1_000_000]))).startswith("Ragged([[0, 0, 0, 0, ..., 0, 0, 0, 0]], 1 rows")


def test_errors_are_shown_as_text():
    offsets = np.array([0, 2])
    made = Ragged(np.arange(2), offsets)
    offsets[1] = 9
    assert repr(made).startswith("Ragged(offsets must be from 0")
    assert "<table><caption>Ragged: offsets must be from 0" in made._repr_html_()


@pytest.mark.parametrize("library", LIBRARIES)
def test_rows_of_one_length_become_an_array(library):
    made = Ragged.from_rows([[1, 2], [3, 4]], return_tensors=library)
    assert np.asarray(made).tolist() == [[1, 2], [3, 4]]
    assert np.asarray(made, dtype=np.float32).dtype == np.float32
    assert np.asarray(made[:0]).shape == (0,)


@pytest.mark.parametrize("library", LIBRARIES)
def test_rows_of_many_lengths_say_what_to_do_instead(library):
    made = Ragged.from_rows([[1, 2], [3]], return_tensors=library)
    with pytest.raises(TypeError, match=r"rows of 1 to 2 tokens is not rectangular: use to_padded\(\) .* to_lists\(\)"):
        np.asarray(made)
    assert [row.tolist() for row in np.asarray(made, dtype=object)] == [[1, 2], [3]]


def test_to_padded_has_the_options_of_pad():
    options = inspect.signature(quadrat.pad).parameters
    found = inspect.signature(Ragged.to_padded).parameters
    assert [(one.name, one.kind, one.default) for one in list(found.values())[1:]] == [
        (one.name, one.kind, one.default) for one in list(options.values())[1:]
    ]


def test_a_deferred_batch_is_a_table_of_its_columns():
    name = "<script>alert('x')</script>"
    batch = quadrat.DeferredBatch({name: torch.zeros(2, 3), "labels": torch.zeros(2)})
    shown = batch._repr_html_()
    assert "<script>" not in shown
    assert f"<td>{html.escape(name)}</td><td>[2, 3]</td><td>float32</td>" in shown
    assert shown.startswith("<table><caption>DeferredBatch: 128 bytes</caption>")
