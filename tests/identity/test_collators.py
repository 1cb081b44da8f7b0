"""What the collators do beyond the reference, and what the user sees of the way they work."""

import copy
import gc
import pickle
import weakref
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from hypothesis import given
from hypothesis import strategies as st

import quadrat
from support import samples
from support.compare import (
    assert_identical,
    assert_same_batch,
    assert_same_outcome,
    both,
    seeded,
)
from support.masking import make_masking_tokenizer
from support.strategies import PadsInItsOwnWay, make_tokenizer

NAMES = ["DataCollatorWithPadding", "DataCollatorForTokenClassification", "DataCollatorForSeq2Seq"]


@pytest.mark.parametrize("name", NAMES)
def test_equal_when_their_fields_are(name):
    tokenizer = make_tokenizer()
    first, second = getattr(quadrat, name)(tokenizer), getattr(quadrat, name)(tokenizer)
    first([{"input_ids": [1, 2]}])
    assert first == second
    assert first != getattr(quadrat, name)(tokenizer, pad_to_multiple_of=8)


rows = st.lists(st.lists(st.integers(-9, 9), max_size=6), min_size=1, max_size=4)


# What the numbers of a column are, and what pads it.
KINDS = {"ints": (int, -100), "floats": (float, -1.5), "bools": (bool, False), "numpy's": (bool, np.bool_(True))}


@given(rows, st.sampled_from(["right", "left"]), st.sampled_from([None, 4]), st.sampled_from(["pt", "np"]), st.data())
def test_pad_values_pads_like_quadrat_pad(words, side, multiple, framework, data):
    kind, value = KINDS[data.draw(st.sampled_from([*KINDS] if any(words) else ["ints"]))]
    tokenizer = make_tokenizer(padding_side=side)
    features = [{"input_ids": [7, *row], "words": [*map(kind, row)], "aligned": [1, *row]} for row in words]
    collator = quadrat.DataCollatorWithPadding(
        tokenizer, pad_to_multiple_of=multiple, return_tensors=framework, pad_values={"words": value, "aligned": 3}
    )
    batch = collator(features)
    plain = transformers.DataCollatorWithPadding(tokenizer, pad_to_multiple_of=multiple, return_tensors=framework)
    expected = plain([{"input_ids": feature["input_ids"]} for feature in features])
    assert [name for name in batch if name in features[0]] == list(features[0])
    assert_same_batch(expected["input_ids"], batch["input_ids"], "input_ids")
    width = batch["input_ids"].shape[1]
    options = {"padding_side": side, "pad_to_multiple_of": multiple, "return_tensors": framework}
    for name, padding, length in (("words", value, None), ("aligned", 3, width)):
        column = [feature[name] for feature in features]
        dtype = torch.float32 if padding == -1.5 and framework == "pt" else None
        padded = quadrat.pad(column, padding_value=padding, max_length=length, dtype=dtype, **options)
        assert_same_batch(padded, batch[name], name)


def test_pad_values_are_numbers_of_numpy_too():
    features = [{"input_ids": [1, 2], "a": np.array([1], np.int8)}, {"input_ids": [1], "a": np.array([1, 2], np.int8)}]
    padded = quadrat.DataCollatorWithPadding(make_tokenizer(), pad_values={"a": np.int64(300)})(features)
    assert (padded["a"].tolist(), padded["a"].dtype) == ([[1, 300], [1, 2]], torch.int64)
    values = {"b": np.float32(0.5)}
    joined = quadrat.DataCollatorWithFlattening(pad_to_multiple_of=4, pad_values=values)
    rows = [{"input_ids": [1, 2, 3], "b": [1.0, 2.0, 3.0]}]
    assert joined(rows)["b"].tolist() == [[1.0, 2.0, 3.0, 0.5]]


@pytest.mark.parametrize(("name", "width"), [(NAMES[0], 2), (NAMES[1], 2), (NAMES[2], 4)])
def test_columns_of_a_decoder(name, width):
    """Where a model compares them with labels they are as wide, and elsewhere as their longest row."""
    tokenizer = make_tokenizer()
    options = {"padding": "max_length", "max_length": 4, "pad_values": {"decoder_mask": 0}}
    collator = getattr(quadrat, name)(tokenizer, **options)
    features = [{"input_ids": [1, 2, 3], "decoder_mask": [1] * n, "labels": [1, 2, 3]} for n in (2, 1)]
    assert collator(features)["decoder_mask"].shape == (2, width)


def test_a_model_makes_the_ids_of_its_decoder():
    class Model:
        def prepare_decoder_input_ids_from_labels(self, labels):
            return labels + 1000

    collator = quadrat.DataCollatorForSeq2Seq(make_tokenizer(), Model(), pad_values={"decoder_input_ids": 0})
    batch = collator([{"input_ids": [1, 2], "labels": [3, 4], "decoder_input_ids": [7]}])
    assert batch["decoder_input_ids"].tolist() == [[1003, 1004]]


ROW = {"input_ids": [5, 6]}
MAKERS = {
    "flattening": quadrat.DataCollatorWithFlattening,
    "language": lambda **options: quadrat.DataCollatorForLanguageModeling(make_tokenizer(), mlm=False, **options),
    "masked": lambda **options: quadrat.DataCollatorForLanguageModeling(
        make_masking_tokenizer(), rng="philox", **options
    ),
    **{name: lambda name=name, **options: getattr(quadrat, name)(make_tokenizer(), **options) for name in NAMES},
    "joined tokens": lambda **options: quadrat.DataCollatorForTokenClassification(
        make_tokenizer(), padding_free=True, **options
    ),
    "joined ids": lambda **options: quadrat.DataCollatorForLanguageModeling(
        make_tokenizer(), mlm=False, padding_free=True, **options
    ),
}


@given(st.sampled_from([*MAKERS]), st.lists(st.booleans(), min_size=1, max_size=6), st.booleans(), st.data())
def test_rows_that_lack_a_column_of_pad_values(name, has, known, data):
    """One error, whichever row lacks it: it is never left out without a word. Labels may be absent from all rows."""
    column = data.draw(st.sampled_from(["words", "label_ids"]))
    axes = {"pad_axes": {column: -1}} if data.draw(st.booleans()) and "joined" not in name and name in NAMES else {}
    collator = MAKERS[name](pad_values={column: -1}, **axes)
    with_labels = name == "DataCollatorForTokenClassification"
    row = {**ROW, **({"labels": [1, 2]} if with_labels else {})}
    output = "labels" if (name, column) == ("DataCollatorWithPadding", "label_ids") else column
    if known:
        assert collator([{**row, column: [1, 2]}] * len(has))[output].shape[-1] >= 2
    rows = [{**row, column: [1, 2]} if has_column else row for has_column in has]
    for _ in range(2):
        if all(has) or (column == "label_ids" and not any(has)):
            assert (output in collator(rows)) == all(has)
        else:
            with pytest.raises(KeyError, match=f"'{column}' is missing in row {has.index(False)}"):
                collator(rows)


@pytest.mark.parametrize("options", [{}, {"pad_axes": {"label": -1, "label_ids": -1}}], ids=["rows", "axes"])
@pytest.mark.parametrize("column", ["label", "label_ids"])
def test_columns_that_become_labels_are_padded_with_their_own_value(column, options):
    collator = quadrat.DataCollatorWithPadding(make_tokenizer(), pad_values={"label": -1, "label_ids": -1}, **options)
    rows = [{**ROW, column: [1, 2]}, {**ROW, column: [3]}]
    for _ in range(2):
        assert collator(rows)["labels"].tolist() == [[1, 2], [3, -1]]


OWN_OPTIONS = [{"pad_values": {"words": 0}}, {"join_columns": ("words",)}, {"dtypes": {"words": "int32"}}]


@pytest.mark.parametrize("options", OWN_OPTIONS)
@pytest.mark.parametrize("name", NAMES)
def test_batches_with_options_of_quadrats_never_fall_back(name, options):
    rows = [{**ROW, "labels": [1, 2], "words": [1, 2]}] * 2
    collator = getattr(quadrat, name)(make_tokenizer(cls=PadsInItsOwnWay), **options)
    for _ in range(2):
        with pytest.raises(ValueError, match=r"own way: the batch cannot fall back to transformers.*; do not"):
            collator(rows)
    collator = getattr(quadrat, name)(make_tokenizer(), **options)
    assert "words" in collator(rows)
    with pytest.raises(ValueError, match="'input_ids' is not made of lists of ints"):
        collator([{**row, "input_ids": ["a", "b"]} for row in rows])


def test_labels_without_padding_never_fall_back():
    tokenizer = make_tokenizer(cls=PadsInItsOwnWay)
    with pytest.raises(ValueError, match="own way: the batch cannot fall back"):
        quadrat.DataCollatorForLanguageModeling(tokenizer, mlm=False, mask_padding="length")([ROW])


@pytest.mark.parametrize(("name", "labels"), [(NAMES[1], [[1, 2], [3]]), (NAMES[2], [[1, 2, 3], [1]])])
def test_pad_values_beside_labels(name, labels):
    words, ids = [[0, 1], [0]], [[1, 2], [1]]
    features = [{"words": words[i], "labels": labels[i], "input_ids": ids[i]} for i in range(2)]
    batch = getattr(quadrat, name)(make_tokenizer(), pad_values={"words": -1})(features)
    assert batch["words"].tolist() == [[0, 1], [0, -1]]
    assert batch["labels"].tolist() == quadrat.pad(labels, padding_value=-100).tolist()
    assert list(batch)[:2] == ["words", "input_ids"]
    assert list(batch)[-1] == "labels"


@pytest.mark.parametrize("form", [list, np.array, torch.tensor])
@pytest.mark.parametrize("wrap", [dict, transformers.BatchEncoding])
@pytest.mark.parametrize("name", samples.CLASSES)
def test_usual_rows_do_not_fall_back(name, wrap, form):
    form = list if name == "DataCollatorForMultipleChoice" else form
    quadrat.stats(reset=True)
    rows = [
        {key: form(value) if type(value) is list else value for key, value in row.items()}
        for row in samples.batch(name)
    ]
    samples.make(quadrat, name)([wrap(row) for row in rows])
    assert quadrat.stats().fell_back == 0


@pytest.mark.parametrize("name", NAMES[1:])
def test_pad_values_are_not_for_labels(name):
    collator = getattr(quadrat, name)(make_tokenizer(), pad_values={"labels": 0})
    with pytest.raises(ValueError, match="label_pad_token_id"):
        collator([{"input_ids": [1, 2], "labels": [1, 2]}])


def test_multiple_choice_leaves_the_labels_where_they_are():
    examples = [{"input_ids": [[1, 2], [3]], "label": 1}, {"input_ids": [[1], [2, 3]], "label": 0}]
    collator = quadrat.DataCollatorForMultipleChoice(make_tokenizer(cls=PadsInItsOwnWay))
    for _ in range(2):
        assert collator(examples)["labels"].tolist() == [1, 0]
    assert [list(example) for example in examples] == [["input_ids", "label"]] * 2


@pytest.mark.parametrize("cls", [transformers.PreTrainedTokenizerFast, PadsInItsOwnWay])
@pytest.mark.parametrize("framework", ["pt", "np"])
@pytest.mark.parametrize("name", NAMES)
def test_a_collator_that_has_worked_is_freed(name, framework, cls):
    collator = getattr(quadrat, name)(make_tokenizer(cls=cls), return_tensors=framework)
    for _ in range(3):
        collator([{"input_ids": [1, 2]}, {"input_ids": [3]}])
    assert f"_quadrat_{framework}" in vars(collator), "the batches were remembered"
    gone = weakref.ref(collator), weakref.ref(collator.tokenizer)
    del collator
    gc.collect()
    assert [reference() for reference in gone] == [None, None]


class OwnCollator(quadrat.DataCollatorWithPadding):
    """Has options of its own, named like those of collators of other kinds."""

    plm_probability = mlm_probability = 0.5
    separator_id = label_pad_token_id = -7
    _shuffle = None


def test_what_a_collator_does_goes_by_its_class():
    features = [{"input_ids": [5] * length, "labels": [1] * length} for length in (1, 2)]
    messages = []
    for cls in (quadrat.DataCollatorWithPadding, OwnCollator):
        with pytest.raises(ValueError, match="'labels' is ragged and not padded here") as raised:
            cls(make_tokenizer())(features)
        messages.append(str(raised.value))
        padded = cls(make_tokenizer(), pad_values={"labels": -100})(features)
        assert padded["labels"].tolist() == [[1, -100], [1, 1]]
    assert messages[0] == messages[1]


# Options that a copy has as well, beside those of the sample.
OPTIONS = {
    "DataCollatorWithFlattening": {"separator_id": 3, "pad_to_multiple_of": 4, "position_ids_start": 2},
    "DataCollatorForPermutationLanguageModeling": {"max_span_length": 3},
    "DataCollatorForWholeWordMask": {"return_tensors": "np"},
}


@pytest.mark.parametrize("copied", [lambda collator: pickle.loads(pickle.dumps(collator)), copy.copy, copy.deepcopy])
@pytest.mark.parametrize("name", samples.CLASSES)
def test_copies_start_afresh_from_the_same_state(name, copied):
    collator, fresh = (samples.make(quadrat, name, **OPTIONS.get(name, {})) for _ in range(2))
    collator(samples.batch(name))
    if copied is not copy.copy and any(isinstance(value, torch.Generator) for value in vars(collator).values()):
        try:
            copied(torch.Generator())
        except TypeError:
            pytest.skip("this torch cannot copy generators")
    twin = copied(collator)
    assert set(vars(twin)) == set(vars(fresh))
    expected, states = seeded(collator, samples.batch(name))
    if copied is not copy.copy or vars(fresh).get("seed") is None:  # it shares the generator
        got, other_states = seeded(twin, samples.batch(name))
        assert_same_outcome(expected, got)
        assert states == other_states


@pytest.mark.parametrize("name", samples.CLASSES)
def test_another_collator_with_the_same_options_knows_the_batches(name):
    options = {option: None for option in samples.SAMPLES[name][0] if option == "seed"}
    gc.collect()  # an equal collator of an earlier test would know the batches
    collator = samples.make(quadrat, name, **options)
    equal, other = copy.copy(collator), copy.copy(collator)
    other.another = None
    for asked, knows in ((collator, False), (equal, True), (other, False)):
        before = quadrat.stats().remembered
        asked(samples.batch(name))
        assert quadrat.stats().remembered - before == knows


def two_rows(**columns: Any) -> list[dict[str, Any]]:
    return [{"input_ids": list(range(5, 5 + n)), **{name: make(n) for name, make in columns.items()}} for n in (4, 2)]


def own() -> Any:
    return make_tokenizer(cls=PadsInItsOwnWay)


# (collator, tokenizer, options, features): each falls back whatever else happens.
FALLS_BACK: dict[str, tuple[str, Any, dict[str, Any], Any]] = {
    "a tokenizer of its own": (NAMES[0], own, {}, two_rows()),
    "no framework": (NAMES[0], make_tokenizer, {"return_tensors": None}, two_rows()),
    "labels of floats": (NAMES[1], make_tokenizer, {}, two_rows(labels=lambda n: [1.0] * n)),
    "its own, with labels": (NAMES[1], own, {}, two_rows(labels=lambda n: [1] * n)),
    "its own, for NumPy": (NAMES[1], own, {"return_tensors": "np"}, two_rows()),
    "targets of floats": (NAMES[2], make_tokenizer, {}, two_rows(labels=lambda n: [1.5] * n)),
    "its own, with targets": (NAMES[2], own, {}, two_rows(labels=lambda n: [1] * n)),
    "its own, causal": ("DataCollatorForLanguageModeling", own, {"mlm": False}, two_rows()),
    "its own, of choices": ("DataCollatorForMultipleChoice", own, {}, samples.batch("DataCollatorForMultipleChoice")),
}


def known(collator: Any, features: Any) -> Any:
    """What a collator knows of such batches: (reason, remedy), to fall back."""
    run = vars(collator).get(collator._memory_of(collator.return_tensors))
    return None if run is None else run(collator, features)


@pytest.mark.parametrize("kind", FALLS_BACK)
def test_batches_that_fall_back_are_known(kind):
    """Until the tokenizer changes; what comes as columns reaches the reference as rows."""
    name, tokenizer, options, features = FALLS_BACK[kind]
    reference, collator = both(name, tokenizer(), **options)
    assert_identical(reference, collator, features)
    assert type(known(collator, features)) is tuple
    assert_identical(reference, collator, tuple(features))
    columns = {column: [feature[column] for feature in features] for column in features[0]}
    assert_identical(reference, collator, features, given=columns)
    for each in (reference, collator):
        each.tokenizer = make_tokenizer(padding_side="left")
    if tokenizer is own:
        assert known(collator, features) is None
    assert_identical(reference, collator, features)


def test_what_failed_by_its_rows_says_nothing_of_others():
    """Rows that hold a float among ints fall back; those of the same kind that do not are made at once."""
    reference, collator = both(NAMES[0], make_tokenizer())
    odd, even = two_rows(score=lambda n: [1, 0.5]), two_rows(score=lambda n: [1, 2])
    for features in (odd, even) * 3:
        assert_identical(reference, collator, features)
        assert (type(known(collator, features)) is tuple) == (features is odd)


@pytest.mark.parametrize("tokenizer", [own, make_tokenizer], ids=["own", "usual"])
def test_options_of_quadrats_for_batches_that_fall_back(tokenizer):
    """Deferred batches are made of the reference's; columns that it does not pad are not left out."""
    features = two_rows(labels=lambda n: [1.0] * n, extra=lambda n: [1] * 3)
    collator = quadrat.DataCollatorForTokenClassification(tokenizer())
    plain = collator(features)
    collator.deferred = True
    for _ in range(2):
        batch = collator(features)
        assert isinstance(batch, quadrat.deferred.DeferredBatch)
        assert batch["input_ids"].tolist() == plain["input_ids"].tolist()
    collator.pad_values = {"extra": 0}
    for _ in range(2):
        with pytest.raises(ValueError, match="lacks options"):
            collator(features)
