"""The further options of DataCollatorWithFlattening, and padding-free token classification, against definitions."""

import types
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
import transformers
from hypothesis import assume, given

import quadrat
from quadrat.installed.behaviour import flattening_drops_empty_rows, flattening_takes_arrays
from quadrat.planning import flat
from support.compare import assert_same_batch, frozen, outcome
from support.samples import make
from support.strategies import OTHER_ROWS, ROW_FORMS, WRAPPERS, make_tokenizer

pytestmark = pytest.mark.same_everywhere

FORMS = ["array", "int32", "list", "tensor"]
PLAIN = sorted(set(WRAPPERS) - {"Mapping"})  # which may run code of its own when it is read
FRAMEWORKS = st.sampled_from(["pt", "np"])


@st.composite
def batches(draw: Any, *names: str, shortest: int = 1) -> list[dict[str, list[int]]]:
    """Rows of equally long lists of small ints."""
    lengths = draw(st.lists(st.integers(shortest, 9), min_size=1, max_size=6))
    small = st.integers(0, 300)
    return [{name: draw(st.lists(small, min_size=n, max_size=n)) for name in names} for n in lengths]


def formed(batch: list[dict[str, list[int]]], form: str, wrapper: str = "dict") -> list[Any]:
    return [WRAPPERS[wrapper]({name: ROW_FORMS[form](row) for name, row in feature.items()}) for feature in batch]


def test_a_tokenizer_does_not_forbid_values_of_its_columns():
    collator = quadrat.DataCollatorWithFlattening(pad_to_multiple_of=4, pad_values={"input_ids": 9})
    collator.tokenizer = types.SimpleNamespace(model_input_names=["input_ids"])
    assert collator([{"input_ids": [1, 2, 3]}])["input_ids"].tolist() == [[1, 2, 3, 9]]


@given(batch=batches("input_ids", shortest=0), framework=FRAMEWORKS, options=st.booleans())
def test_without_need_of_padding_nothing_changes(*, batch, framework, options):
    assume(any(feature["input_ids"] for feature in batch) or not flattening_drops_empty_rows())
    options = {"return_seq_idx": options, "return_flash_attn_kwargs": options, "return_tensors": framework}
    plain = quadrat.DataCollatorWithFlattening(**options)(batch)
    assert_same_batch(plain, quadrat.DataCollatorWithFlattening(**options, pad_values={})(batch))
    if all(feature["input_ids"] for feature in batch):
        assert_same_batch(plain, quadrat.DataCollatorWithFlattening(**options, pad_to_multiple_of=1)(batch))


LABELS = {
    "ints": [3, 0, 2],
    "floats": [0.5, 1.5, -2.0],
    "bools": [True, False, True],
    "numpy": [np.int64(3), np.int64(1), np.int64(2)],
    "tensors": [torch.tensor(1), torch.tensor(0), torch.tensor(3)],
}


@pytest.mark.parametrize("framework", ["pt", "np"])
@pytest.mark.parametrize("name", ["label", "labels"])
@pytest.mark.parametrize("labels", sorted(LABELS))
@given(form=st.sampled_from(FORMS), multiple=st.sampled_from([None, 4]))
def test_scalar_labels(framework, name, labels, *, form, multiple):
    rows = formed([{"input_ids": [5, 6]}, {"input_ids": [7]}, {"input_ids": [8, 9]}], form)
    features = [{**row, name: label} for row, label in zip(rows, LABELS[labels], strict=True)]
    options = {"return_tensors": framework, "return_seq_idx": True, "pad_to_multiple_of": multiple}
    batch = quadrat.DataCollatorWithFlattening(scalar_labels=True, **options)(features)
    expected = quadrat.DataCollatorWithFlattening(**options)(rows)
    tensors = [{"label": label} for label in LABELS[labels]]
    expected["labels"] = transformers.default_data_collator(tensors, framework)["labels"]
    assert_same_batch(expected, batch)


def test_scalar_labels_without_labels():
    batch = quadrat.DataCollatorWithFlattening(scalar_labels=True)([{"input_ids": [1, 2]}])
    assert list(batch) == ["input_ids", "position_ids"]


@pytest.mark.parametrize("options", [{}, {"pad_to_multiple_of": 8}, {"scalar_labels": True}, {"pad_values": {"a": 1}}])
@pytest.mark.parametrize(
    "features", [[], (), None, 5, "text", [None], [5], ["input_ids"], {}, {"input_ids": [1]}, [{"ids": [1]}]]
)
def test_no_features(features, options):
    reference, collator = (module.DataCollatorWithFlattening for module in (transformers, quadrat))
    (_, expected), (_, got) = outcome(reference(), features), outcome(collator(**options), features)
    assert type(got) is type(expected), got


GOOD = {"input_ids": [1, 2, 3], "labels": [1, 2, 3], "token_type_ids": [0, 0, 1]}


@pytest.mark.parametrize(
    ("error", "options", "changes", "said"),
    [
        (ValueError, {"pad_to_multiple_of": 0}, {}, ["pad_to_multiple_of", "0"]),
        (ValueError, {"pad_to_multiple_of": 8.0}, {}, ["pad_to_multiple_of", "8.0"]),
        (ValueError, {"pad_to_multiple_of": True}, {}, ["pad_to_multiple_of", "True"]),
        (TypeError, {"pad_values": ["token_type_ids"]}, {}, ["pad_values", "token_type_ids"]),
        (ValueError, {"pad_values": {"labels": 0, "seq_idx": 1}}, {}, ["pad_values", "['labels', 'seq_idx']"]),
        (ValueError, {"pad_to_multiple_of": 8}, {"labels": [1]}, ["'labels'", "row 1", "length 1", "has 3"]),
        (
            ValueError,
            {"pad_values": {"token_type_ids": 0}},
            {"token_type_ids": [1, 1]},
            ["'token_type_ids'", "row 1", "length 2", "has 3"],
        ),
        (ValueError, {"scalar_labels": True}, {}, ["scalar_labels", "'labels'", "row 0", "one number per row"]),
        (ValueError, {"scalar_labels": True}, {"labels": [1]}, ["row 0 holds [1, 2, 3]: leave scalar_labels out"]),
        (ValueError, {"pad_to_multiple_of": 8, "return_tensors": "wrong"}, {}, ["return_tensors", "'wrong'"]),
    ],
)
def test_refuses(error, options, changes, said):
    features = [GOOD, {**GOOD, **changes}]
    with pytest.raises(error) as raised:
        quadrat.DataCollatorWithFlattening(**options)(features)
    assert not [words for words in said if words not in str(raised.value)], str(raised.value)


@pytest.mark.parametrize("options", [{"pad_to_multiple_of": 8}, {"total_length": 8}, {"align_to": 2}])
def test_empty_rows(options):
    """They go where transformers drops them, and else have no place."""
    empty = {"labels": [], "input_ids": [], "token_type_ids": []}
    features = [GOOD, empty, GOOD]
    collator = quadrat.DataCollatorWithFlattening(**options)
    if flattening_drops_empty_rows():
        assert_same_batch(collator([features[0], features[2]]), collator(features))
        with pytest.raises(ValueError, match="every example is empty"):
            collator(features[1:2])
        return
    with pytest.raises(ValueError, match=r"row 1 is empty"):
        collator(features)


OWN = {
    "DataCollatorWithFlattening": {"pad_to_multiple_of": 8},
    "DataCollatorForTokenClassification": {"padding_free": True},
    "DataCollatorForLanguageModeling": {"padding_free": True, "mlm": False},
}


@pytest.mark.parametrize("name", OWN)
@pytest.mark.parametrize("form", ["numbers of numpy", *OTHER_ROWS])
@pytest.mark.parametrize("wrapper", ["dict", "Mapping"])
def test_rows_that_no_kernel_reads(name, form, wrapper):
    """The error says what to give; where the reference raises one of such rows, it is of that type."""
    rows = [[5, 6, 7], [8], [9, 10]]
    make_row = (ROW_FORMS | OTHER_ROWS)[form]
    features = [WRAPPERS[wrapper]({"input_ids": make_row(row), "labels": make_row(row)}) for row in rows]
    collator = make(quadrat, name, **OWN[name])
    with pytest.raises((TypeError, ValueError), match=r"give|remove|collate|must be") as raised:
        collator(features)
    kind, expected = outcome(make(transformers, "DataCollatorWithFlattening"), features)
    if name == "DataCollatorWithFlattening" and kind == "raised" and flattening_takes_arrays():
        assert type(raised.value) is type(expected)


def test_where_tensors_are_not_on_the_cpu():
    for name, options in OWN.items():
        with torch.device("meta"), pytest.raises(ValueError, match="collate where torch makes plain CPU tensors"):
            make(quadrat, name, **options)([{"input_ids": [1, 2]}])


# Padding-free token classification


@given(
    batch=batches("input_ids", "attention_mask", "token_type_ids", "special_tokens_mask", "further", shortest=0),
    tokens=st.data(),
    form=st.sampled_from(FORMS),
    wrapper=st.sampled_from(PLAIN),
    framework=FRAMEWORKS,
    label=st.sampled_from([None, "label", "labels"]),
    multiple=st.none() | st.integers(1, 17),
)
def test_is_the_padded_batch_without_its_padding(*, batch, tokens, form, wrapper, framework, label, multiple):
    assume(any(feature["input_ids"] for feature in batch))  # padding has no batch of them
    present = tokens.draw(st.sets(st.sampled_from(sorted(batch[0]))))
    batch = [
        {name: row for name, row in feature.items() if name in {"input_ids", "further", *present}} for feature in batch
    ]
    for feature in batch:
        feature["attention_mask"] = [1] * len(feature["input_ids"])
        if label is not None:
            feature[label] = [token + 1 for token in feature["input_ids"]]
    options = {"label_pad_token_id": -1, "pad_values": {"further": 9}}
    tokenizer = make_tokenizer()
    tokenizer._pad_token_type_id = 3
    padding = quadrat.DataCollatorForTokenClassification(tokenizer, return_tensors="pt", **options)(
        formed(batch, "list")
    )
    mask = padding.pop("attention_mask").bool()
    removed = {name: tensor[mask][None].numpy() for name, tensor in padding.items()}
    collator = quadrat.DataCollatorForTokenClassification(
        tokenizer,
        return_tensors=framework,
        pad_to_multiple_of=multiple,
        padding_free=quadrat.Flattening(return_seq_idx=True, kwargs_for="transformers", position_ids_start=2),
        **options,
    )
    features = formed(batch, form, wrapper)
    before = frozen(features)
    got = collator(features)
    assert type(got) is dict
    assert frozen(features) == before
    total = mask.sum().item()
    rest = -total % (multiple or 1)
    fills = {"input_ids": 0, "token_type_ids": 3, "special_tokens_mask": 1, "further": 9, "label": -1, "labels": -1}
    for name, array in removed.items():
        expected = np.concatenate([array, np.full((1, rest), fills[name])], axis=1)
        assert got[name].dtype == (torch.from_numpy(expected) if framework == "pt" else expected).dtype
        assert got[name].tolist() == expected.tolist(), name
    rows = [feature["input_ids"] for feature in batch]
    flat = quadrat.flatten(rows, position_ids_start=2, pad_to_multiple_of=multiple, return_tensors=framework)
    assert got["position_ids"].tolist() == [flat.position_ids.tolist()]
    assert got["seq_idx"].tolist() == [flat.seq_idx.tolist()]
    for role in "qk":
        assert got[f"cu_seq_lens_{role}"].tolist() == flat.cu_seqlens.tolist()
        assert got[f"max_length_{role}"] == flat.max_length
    outputs = ["position_ids", "seq_idx", "cu_seq_lens_q", "cu_seq_lens_k", "max_length_q", "max_length_k"]
    first = ["input_ids", *([] if label is None else [label]), *outputs]
    assert list(got) == [*first, *(name for name in batch[0] if name in removed and name not in first)]


def test_only_what_is_asked_for():
    how = quadrat.Flattening(return_position_ids=False)
    collator = quadrat.DataCollatorForTokenClassification(make_tokenizer(), padding_free=how)
    assert list(collator([{"input_ids": [1], "labels": [2]}])) == ["input_ids", "labels"]


@pytest.mark.parametrize(
    ("error", "options", "features", "said"),
    [
        (ValueError, {}, [GOOD, {**GOOD, "labels": [1, 2]}], ["'labels'", "row 1", "length 2", "has 3"]),
        (ValueError, {}, [GOOD, {**GOOD, "token_type_ids": [1]}], ["'token_type_ids'", "row 1", "length 1", "has 3"]),
        (ValueError, {"padding": "max_length"}, [GOOD], ["padding_free", "max_length"]),
        (ValueError, {"pad_to_multiple_of": 8, "tokenizer": make_tokenizer(pad_token=None)}, [GOOD], ["pad token"]),
        (ValueError, {"pad_to_multiple_of": -8}, [GOOD], ["pad_to_multiple_of", "-8"]),
        (ValueError, {"padding_free": quadrat.Flattening(align_to=0)}, [GOOD], ["align_to", "0"]),
        (TypeError, {"padding_free": "yes"}, [GOOD], ["padding_free", "quadrat.Flattening", "'yes'"]),
        (TypeError, {}, [GOOD, {**GOOD, "labels": 3}], ["'labels'", "row 1", "the number 3", "one number per token"]),
        (TypeError, {}, [GOOD, {**GOOD, "input_ids": [1, None, 2]}], ["'input_ids'", "row 1", "position 1"]),
        (ValueError, {}, [], ["at least one row"]),
        (ValueError, {}, [{"ids": [1]}], ["'input_ids'", "['ids']"]),
        (ValueError, {}, [{**GOOD, "other": [1, 2, 3]}], ["'other'", "pad_values"]),
        (KeyError, {}, [GOOD, {"input_ids": [1], "labels": [1]}], ["token_type_ids", "missing", "row 1"]),
    ],
)
def test_padding_free_refuses(error, options, features, said):
    collator = quadrat.DataCollatorForTokenClassification(
        **{"tokenizer": make_tokenizer(), "padding_free": True, **options}
    )
    with pytest.raises(error) as raised:
        collator(features)
    assert not [words for words in said if words not in str(raised.value).replace("\\'", "'")], str(raised.value)


def test_labels_none():
    """For collators that make labels of their own."""
    columns = dict.fromkeys(("pad_values", "pad_axes", "dtypes", "join_columns"))
    collator = types.SimpleNamespace(deferred=False, pad_to_multiple_of=4, **columns)
    spec = flat.Flat.of(collator, "np", quadrat.Flattening(), {"special_tokens_mask": 1}, labels="none")
    batch = flat.flatten(collator, [{"input_ids": [1, 2, 3], "special_tokens_mask": [1, 0, 1]}], spec)
    assert {name: value.tolist() for name, value in batch.items()} == {
        "input_ids": [[1, 2, 3, 0]],
        "position_ids": [[0, 1, 2, 3]],
        "special_tokens_mask": [[1, 0, 1, 1]],
    }
