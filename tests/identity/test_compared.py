"""QUADRAT_UNTESTED=compare: batches of unknown code are compared, and differences are found."""

import gc
import json
import logging
import re
import threading
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
import transformers
from datasets import Dataset

import quadrat
from quadrat.installed import imitated
from quadrat.planning.compared import compared
from quadrat.support.differences import first_difference
from support import samples
from support.compare import assert_same_batch, assert_same_outcome, outcome
from support.isolated import python
from support.planted import LATE, PLANTS, USUAL, pads, rows_of, usual
from support.threads import together

UNFOUND = "another token"  # the change shows for one number, and nothing else tells that batch from those compared
AS_BEFORE = "another error"  # quadrat has no batch of such rows, and the reference's error comes of itself


@pytest.fixture(autouse=True)
def unknown(monkeypatch):
    """All code of transformers is unknown, and batches are compared."""
    monkeypatch.setenv("QUADRAT_UNTESTED", "compare")
    monkeypatch.setattr(imitated, "FINGERPRINTS", {})
    imitated.changed.cache_clear()
    imitated.DIFFERENCES.clear()
    quadrat.stats(reset=True)
    yield monkeypatch
    monkeypatch.undo()
    imitated.changed.cache_clear()
    imitated.DIFFERENCES.clear()


@pytest.mark.parametrize(
    ("name", "options", "compared"),
    [
        ("DataCollatorWithPadding", {"deferred": True}, 12),
        ("DataCollatorForTokenClassification", {"padding_free": True}, 0),
        ("DataCollatorForLanguageModeling", {"rng": "philox"}, 0),
    ],
)
def test_batches_that_only_quadrat_has(name, options, compared):
    """Options that change what the reference returns are compared, and what it cannot make is not."""
    collator = samples.make(quadrat, name, **options)
    with pytest.MonkeyPatch.context() as trusted:
        trusted.setenv("QUADRAT_UNTESTED", "1")
        imitated.changed.cache_clear()
        expected = samples.make(quadrat, name, **options)(samples.batch(name))
        collator.__class__._quadrat_shared.clear()
    imitated.changed.cache_clear()
    quadrat.stats(reset=True)
    for _ in range(40):
        got = collator(samples.batch(name))
        assert type(got) is type(expected)
        assert_same_batch(*(batch.to("cpu") if "deferred" in options else batch for batch in (expected, got)))
    assert imitated.DIFFERENCES == {}
    assert quadrat.stats().compared == compared


def test_another_kind_of_batch_is_compared():
    collator = samples.make(quadrat, "DataCollatorWithPadding")
    rows = lambda *lengths: [{"input_ids": [5] * n, "attention_mask": [1] * n} for n in lengths]  # noqa: E731
    for _ in range(15):
        collator(rows(3, 4, 5))
    before = quadrat.stats().compared
    for kinds in (rows(3), rows(1, 4), rows(2, 0), rows(4, 4), [{"input_ids": np.arange(n)} for n in (2, 3)]):
        collator(kinds)
        assert quadrat.stats().compared > before
        before = quadrat.stats().compared


def test_errors_of_functions_are_the_references():
    rows = [{"input_ids": [5], "label": "text"}]
    expected = outcome(pads, rows)
    with quadrat.patch_transformers():
        assert_same_outcome(expected, got := outcome(pads, rows))
    assert str(got[1]) == str(expected[1])


def test_rows_in_arrow():
    collator = samples.make(quadrat, "DataCollatorWithPadding")
    reference = samples.make(transformers, "DataCollatorWithPadding")
    rows = rows_of(5, 3, 6, 4, label=lambda n: 4 - n)
    stored = quadrat.ArrowDataset(Dataset.from_list(rows))
    for _ in range(20):
        assert_same_batch(reference(rows[1:2] * 2), collator(stored.__getitems__([1, 1])))
    before = quadrat.stats().compared
    for _ in range(2):
        assert_same_batch(reference(rows[:1] * 2), collator(stored.__getitems__([0, 0])))
    assert quadrat.stats().compared == before + 1, "the first with a negative label"
    assert imitated.DIFFERENCES == {}


def test_collators_alike_share_what_was_compared(request):
    gc.disable()  # a collection forgets what collators share
    request.addfinalizer(gc.enable)
    collator = samples.make(quadrat, "DataCollatorWithPadding")
    for _ in range(20):
        quadrat.DataCollatorWithPadding(collator.tokenizer)([{"input_ids": [5] * n} for n in (2, 3)])
    assert 8 < quadrat.stats().compared < 14


def test_threads_that_compare():
    collator, rows = samples.make(quadrat, "DataCollatorWithPadding"), samples.batch("DataCollatorWithPadding")
    expected = samples.make(transformers, "DataCollatorWithPadding")(rows)

    def collate():
        for _ in range(20):
            assert_same_batch(expected, collator(samples.batch("DataCollatorWithPadding")))

    together(*[collate] * 4)


def test_no_thread_waits_for_code_of_the_users():
    """Another thread collates, and logs what is shown, before the code that is compared goes on."""
    collator, rows = samples.make(quadrat, "DataCollatorWithPadding"), samples.batch("DataCollatorWithPadding")
    log, shown, batches = logging.getLogger("transformers.of.users"), [], []
    handler = logging.Handler()
    handler.emit = lambda record: shown.append(record.getMessage())

    def elsewhere():
        batches.append(samples.make(quadrat, "DataCollatorForSeq2Seq")(samples.batch("DataCollatorForSeq2Seq")))
        log.warning("of another thread")

    def ours(features):
        log.warning("of quadrat")
        thread = threading.Thread(target=elsewhere, daemon=True)
        thread.start()
        thread.join(60)
        assert batches
        return samples.make(transformers, "DataCollatorWithPadding")(features)

    logging.getLogger("transformers").addHandler(handler)
    try:
        batch = compared(collator, rows, ours, samples.make(transformers, "DataCollatorWithPadding"))
    finally:
        logging.getLogger("transformers").removeHandler(handler)
    assert_same_batch(samples.make(transformers, "DataCollatorWithPadding")(rows), batch)
    assert (len(batches), shown) == (1, ["of another thread"])
    assert imitated.DIFFERENCES == {}


def test_errors_are_the_references():
    collator = samples.make(quadrat, "DataCollatorWithPadding")
    collator([{"input_ids": [5, 6]}])
    with pytest.raises(ValueError, match="quadrat: "):
        collator([{"input_ids": [5, 6], "label": "text"}, {"input_ids": [5], "label": "text"}])
    for rows in ([{}, {}], [[], []], []):
        assert_same_outcome(
            outcome(samples.make(transformers, "DataCollatorForSeq2Seq"), rows),
            outcome(samples.make(quadrat, "DataCollatorForSeq2Seq"), rows),
        )
    assert imitated.DIFFERENCES == {}


@pytest.mark.parametrize(
    ("expected", "got", "message"),
    [
        ({"a": 1}, {"b": 1}, "keys"),
        (torch.tensor([5]).as_strided((1,), (0,)), torch.tensor([6]), r"batch\[0\] is 5 of the reference and 6"),
        ([1, 2], [1], "2 items"),
        ([1], (1,), "a list of the reference and a tuple"),
        (torch.tensor([1.0, 0.0]), torch.tensor([1.0, -0.0]), r"batch\[1\] is 0.0 of the reference and -0.0"),
        (torch.zeros(2, 3), torch.zeros(3, 2), "the shape"),
        (torch.tensor([[1, 2], [3, 4]]), torch.tensor([[1, 2], [3, 5]]), r"batch\[1, 1\] is 4 of the reference and 5"),
        (np.zeros(2, np.int32), np.zeros(2, np.int64), "the dtype int32"),
        (np.ones(2, np.longdouble), np.array([1, 2], np.longdouble), r"batch\[1\]"),
        (torch.eye(2).to_sparse(), torch.ones(2, 2).to_sparse(), r"batch\[0, 1\] is 0.0"),
        (
            *(
                torch.nested.nested_tensor([torch.ones(2), torch.ones(1) + number], layout=torch.jagged)
                for number in (0, 1)
            ),
            r"batch\[1\]\[0\]",
        ),
        ({"a": {"b": [np.float32(1)]}}, {"a": {"b": [np.float32(2)]}}, r"batch\['a'\]\['b'\]\[0\]"),
    ],
)
def test_differences_name_the_first_place(expected, got, message):
    assert first_difference(expected, expected) is None
    assert re.search(message, first_difference(expected, got))


class Plain:
    """No `__eq__`."""


class Arrays(Plain):
    """An `__eq__` that returns arrays."""

    def __eq__(self, other):
        return np.ones(2, bool)

    __hash__ = None


class Fails(Plain):
    """Neither compares nor copies."""

    def __eq__(self, other):
        raise RuntimeError("no comparison")

    __hash__ = None
    __deepcopy__ = __repr__ = __eq__


# What rows may hold, and few things compare.
EXTRAS = {
    "object": Plain,
    "arrays": Arrays,
    "fails": Fails,
    "lock": threading.Lock,
    "iterator": lambda: iter([1, 2]),
    "generator": lambda: (number for number in (1, 2)),
    "function": lambda: lambda: 1,
    "object array": lambda: np.array([Plain(), None, [Fails()]], dtype=object),
    "series": lambda: pd.Series([1, 2]),
    "frame": lambda: pd.DataFrame({"a": [1, np.nan]}),
    "missing": lambda: [pd.NA, pd.NaT, float("nan")],
    "long double": lambda: np.ones(2, np.longdouble),
    "sparse": lambda: torch.eye(2).to_sparse(),
    "sparse rows": lambda: torch.eye(2).to_sparse_csr(),
    "nested": lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(1)]),
    "jagged": lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(1)], layout=torch.jagged),
    "meta": lambda: torch.ones(2, device="meta"),
    "complex": lambda: torch.ones(2, dtype=torch.complex64).conj(),
    "quantized": lambda: torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8),
    "with a gradient": lambda: torch.ones(2, requires_grad=True) * 2,
    "dict": lambda: {"a": Plain(), "b": (Arrays(), {1})},
    "text": lambda: "text",
}


@pytest.mark.parametrize("kind", EXTRAS)
@pytest.mark.filterwarnings("ignore")
def test_what_does_not_compare_is_no_difference(kind):
    extras = [EXTRAS[kind]() for _ in USUAL]
    rows = lambda: usual(extra=lambda n: extras[USUAL.index(n)])  # noqa: E731
    collators = (
        quadrat.DataCollatorWithFlattening(),
        quadrat.DefaultDataCollator("np"),
        lambda features: quadrat.tokenizers.tokenizer_pad(samples.tokenizer(), features),
    )
    type(collators[0])._quadrat_shared.clear()
    for collator in collators:
        for _ in range(3):
            outcome(collator, rows())
    assert imitated.DIFFERENCES == {}
    assert quadrat.stats().compared > 0


ONCE = """
import torch, quadrat
from transformers import BatchEncoding
from quadrat.installed import imitated
imitated.FINGERPRINTS.clear()
one = torch.ones(2, dtype=torch.float16, requires_grad=True)
made = quadrat.tokenizers.convert_to_tensors(BatchEncoding({"a": [[1, 2]], "b": [[one[0], one[1]]]}), "pt")
print(quadrat.stats().compared, imitated.DIFFERENCES)
"""


def test_what_torch_says_once_is_no_difference():
    """To whom it says so depends on who comes first."""
    assert python("-W", "ignore", "-c", ONCE, QUADRAT_UNTESTED="compare") == "1 {}\n"


@pytest.mark.slow
def test_planted_changes_are_found():
    script = Path(__file__).parents[1] / "support/planted.py"
    reports = [json.loads(line) for line in python("-W", "ignore", script).splitlines()]
    assert [report["name"] for report in reports] == list(PLANTS)
    for report in reports:
        late = PLANTS[report["name"]].late is not None
        if report["name"] == UNFOUND:
            assert (report["differing"], report["told"]) == ([LATE], [])
            continue
        assert report["differing"] == [], report
        if report["name"] != AS_BEFORE:
            (number, text), *_ = report["told"]
            assert number == (LATE if late else 0), report
            assert "of the reference" in text or "the reference warns" in text or "differs afterwards" in text, text
