"""Collators that pad, and those that stack what is equally long == those of the installed transformers."""

import copy
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from hypothesis import given
from hypothesis import strategies as st
from transformers import PerceiverTokenizer
from transformers.utils import PaddingStrategy

import quadrat
from support.compare import assert_identical, both
from support.forms import observed
from support.strategies import (
    PADDING,
    WRAPPERS,
    PadsInItsOwnWay,
    features,
    make_tokenizer,
    number_columns,
    row_columns,
    tokenizers,
)

OPTIONS = st.fixed_dictionaries({**PADDING, "return_tensors": st.sampled_from(["pt"] * 3 + ["np"] * 3 + [None])})


@given(tokenizers(), features(), OPTIONS)
def test_with_padding(tokenizer, batch, options):
    assert_identical(*both("DataCollatorWithPadding", tokenizer, **options), batch)


@given(tokenizers(), st.sampled_from(["labels", "label", None]).flatmap(lambda name: features(labels=name)), OPTIONS)
def test_token_classification(tokenizer, batch, options):
    options["return_tensors"] = options["return_tensors"] or "pt"
    collators = both("DataCollatorForTokenClassification", tokenizer, label_pad_token_id=-100, **options)
    assert_identical(*collators, batch)


FRAMEWORKS = st.sampled_from(["pt", "np"])
BATCHES = features(equal=True) | features(equal=True, labels="label_ids") | features()


def assert_function_is_alike(batch, framework):
    assert_identical(
        lambda rows: transformers.default_data_collator(rows, framework),
        lambda rows: quadrat.default_data_collator(rows, framework),
        batch,
    )


@given(BATCHES, FRAMEWORKS)
def test_function(batch, framework):
    assert_function_is_alike(batch, framework)


@given(BATCHES, FRAMEWORKS, st.sampled_from([None, "pt", "np", "wrong"]))
def test_class(batch, framework, override):
    reference, collator = both("DefaultDataCollator", return_tensors=framework)
    assert_identical(lambda rows: reference(rows, override), lambda rows: collator(rows, override), batch)


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "uint32", "uint64", "int8", "int64", "float16", "bool"])
@pytest.mark.parametrize("name", ["score", "labels"])
@pytest.mark.parametrize("framework", ["pt", "np"])
def test_numpy_numbers(dtype, name, framework):
    """torch takes some as they are, and refuses others."""
    rows = [{"input_ids": [1, 2], name: np.dtype(dtype).type(number)} for number in (0, 1)]
    for _ in range(2):
        assert_function_is_alike(rows, framework)


@given(features(equal=True), FRAMEWORKS, st.sampled_from([list, tuple]), st.booleans())
def test_objects_with_attributes(batch, framework, container, mixed):
    objects = [SimpleNamespace(**dict(row.items())) for row in batch]
    assert_function_is_alike(container([*objects, batch[-1]] if mixed else objects), framework)


class Decoder:
    """A model that shifts labels to the right, for torch and for NumPy."""

    def prepare_decoder_input_ids_from_labels(self, labels: Any) -> Any:
        if isinstance(labels, torch.Tensor):
            return torch.cat([labels.new_zeros(len(labels), 1), labels], dim=1)[:, :-1].masked_fill(labels == -100, 0)
        return np.concatenate([np.zeros((len(labels), 1), labels.dtype), labels], axis=1)[:, :-1]


class Fails:
    def prepare_decoder_input_ids_from_labels(self, labels: Any) -> Any:
        raise NotImplementedError("not this model")


MODELS = st.sampled_from([None, None, Decoder(), Decoder(), Fails(), object()])
STRATEGIES = ["longest", "max_length", "do_not_pad", False, PaddingStrategy.MAX_LENGTH, PaddingStrategy.DO_NOT_PAD]
SEQ2SEQ_OPTIONS = st.fixed_dictionaries(
    {
        "padding": st.sampled_from([True] * 6 + STRATEGIES + ["max_length", "wrong"]),
        "max_length": st.sampled_from([None, None, None, 4, 9, 12, -1]),
        "pad_to_multiple_of": st.sampled_from([None, None, 1, 4, 8, True, 0]),
        "label_pad_token_id": st.sampled_from([-100] * 6 + [0, -1, 2**40, 2**62 + 1, 2**63, -1.0, None]),
        "return_tensors": st.sampled_from(["pt"] * 4 + ["np"] * 3 + [None]),
    }
)
PER_CALL = st.sampled_from([None] * 4 + ["pt", "np", "wrong"])


@st.composite
def targets(draw: Any) -> list[Any]:
    """Features with rows of labels as long as they like, now and then of one length, None, empty or of other kinds."""
    batch = draw(features())
    name = draw(st.sampled_from(["labels"] * 3 + ["label"]))
    most = draw(st.sampled_from([9, 9, 9, 0, 15]))
    sizes = [draw(st.integers(0, most))] * len(batch)
    if draw(st.integers(0, 3)):
        sizes = draw(st.lists(st.integers(0, most), min_size=len(batch), max_size=len(batch)))
    form = draw(st.sampled_from(["list"] * 4 + ["array", "tensor", "tuple"]))
    element = draw(st.sampled_from(["int"] * 6 + ["small", "bool", "float"]))
    labels = draw(row_columns(sizes, form, element))
    nothing = draw(st.integers(0, 9))
    if nothing == 0:
        labels = [None] * len(batch)
    elif nothing == 1:
        labels[draw(st.integers(0, len(labels) - 1))] = draw(st.sampled_from([None, 7, "text", [1, "x"], [1, 0.5]]))
    if draw(st.integers(0, 15)) > 0:
        batch = [{key: value for key, value in row.items() if key not in ("label", "labels")} for row in batch]
    first = draw(st.booleans())
    rows = [{name: label, **row} if first else {**row, name: label} for row, label in zip(batch, labels, strict=True)]
    if draw(st.integers(0, 15)) == 0:
        del rows[draw(st.integers(0, len(rows) - 1))][name]
    wrapper = WRAPPERS[draw(st.sampled_from(["dict"] * 4 + sorted(WRAPPERS)))]
    return [wrapper(row) for row in rows]


@given(tokenizers(), targets() | targets() | features(), SEQ2SEQ_OPTIONS, MODELS, PER_CALL)
def test_seq2seq(tokenizer, batch, options, model, per_call):
    reference, collator = both("DataCollatorForSeq2Seq", tokenizer, model, **options)
    assert_identical(lambda rows: reference(rows, per_call), lambda rows: collator(rows, per_call), batch)


@given(st.lists(st.tuples(targets(), PER_CALL), min_size=2, max_size=5), tokenizers(), MODELS)
def test_return_tensors_change_from_call_to_call(calls, tokenizer, model):
    reference, collator = both("DataCollatorForSeq2Seq", tokenizer, model)
    for batch, per_call in [*calls, *calls]:
        assert_identical(
            lambda rows, to=per_call: reference(rows, return_tensors=to),
            lambda rows, to=per_call: collator(rows, return_tensors=to),
            batch,
        )


@given(
    st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=1, max_size=4),
    st.fixed_dictionaries(
        {
            "max_length": st.sampled_from([None, 12]),
            "pad_to_multiple_of": st.sampled_from([None, 5]),
            "return_tensors": FRAMEWORKS,
        }
    ),
    st.sampled_from(["right", "left"]),
)
def test_columns_of_the_decoder_follow_the_labels(lengths, options, side):
    """Of one width with what the reference makes of the labels: known batches, and deferred ones."""
    options["padding"] = "max_length" if options["max_length"] else True
    ids = [list(range(5, 5 + length)) for _, length in lengths]
    rows = [{"input_ids": [5] * length, "labels": row} for (length, _), row in zip(lengths, ids, strict=True)]
    reference, collator = both("DataCollatorForSeq2Seq", make_tokenizer(padding_side=side), **options)
    expected = reference(rows)["labels"].tolist()
    collator.pad_values = {"decoder_input_ids": -100, "decoder_attention_mask": 0}
    of_decoder = [{"decoder_input_ids": row, "decoder_attention_mask": [1] * len(row)} for row in ids]
    rows = [row | decoder_row for row, decoder_row in zip(rows, of_decoder, strict=True)]
    for collator.deferred in (False, False, options["return_tensors"] == "pt"):
        batch = collator(rows)
        assert batch["decoder_input_ids"].tolist() == batch["labels"].tolist() == expected
        mask = [[int(token != -100) for token in row] for row in expected]
        assert batch["decoder_attention_mask"].tolist() == mask


CHOICE_OPTIONS = st.fixed_dictionaries({**PADDING, "return_tensors": st.sampled_from(["pt"] * 8 + ["np", None])})
CHOICE_COLUMNS = ["input_ids", "attention_mask", "token_type_ids", "special_tokens_mask", "extra", "score"]


def _nested(draw: Any, rows: list[Any]) -> Any:
    """The rows of one example in something other than a list, where that is possible."""
    kind = draw(st.sampled_from(["tuple", "array", "dict", "list", "longer list"]))
    if kind == "array" and all(isinstance(row, list) and len(row) == len(rows[0]) for row in rows):
        return draw(st.sampled_from([np.array, torch.tensor]))(rows)
    if kind == "dict":
        return dict(enumerate(rows))
    return tuple(rows) if kind == "tuple" else [*rows, rows[0]] if kind == "longer list" else rows


def _spoil(draw: Any, examples: list[dict[str, Any]]) -> None:
    """Something wrong, or just unusual, in one example."""
    example = draw(st.sampled_from(examples))
    name = draw(st.sampled_from(sorted(example)))
    what = draw(st.sampled_from(["missing", "None", "str", "fewer", "more", "further", "row", "element", "both"]))
    value = example[name]
    if what == "missing":
        del example[name]
    elif what in ("None", "str"):
        example[name] = None if what == "None" else "text"
    elif what == "further":
        example["further"] = draw(st.sampled_from([0.5, "long text", [[1], [2], [3], [4]]]))
    elif what == "both":
        for other in examples:
            other.update(label=0, labels=draw(st.sampled_from([1, [[1], [2], [3], [4]]])))
    elif isinstance(value, list) and value:
        if what == "fewer":
            value.pop()
        elif what == "more":
            value.append(value[0])
        elif isinstance(value[-1], list):
            value[-1] = value[-1][:-1] if what == "row" else [*value[-1], draw(st.sampled_from([None, 0.5, 2**63]))]


@st.composite
def examples(draw: Any) -> list[Any]:
    """Examples with rows for each choice, in the forms and of the numbers that `support.strategies.features` has."""
    count, choices = draw(st.integers(1, 4)), draw(st.sampled_from([1, 2, 2, 3, 3, 4, 4, 4, 4, 0]))
    total, longest = count * choices, draw(st.integers(0, 9))
    lengths = draw(st.lists(st.integers(0, longest), min_size=total, max_size=total))
    if draw(st.integers(0, 4)) == 0:
        lengths = [longest] * total
    form = draw(st.sampled_from(["list"] * 5 + ["array", "tensor", "tuple"]))
    columns = {}
    for name in draw(st.permutations(CHOICE_COLUMNS)):
        if name == "score" and draw(st.integers(0, 4)) == 0:
            columns[name] = draw(number_columns(total))
        elif name == "input_ids" or (name != "score" and draw(st.booleans())):
            element = "int" if name == "input_ids" else draw(st.sampled_from(["small"] * 6 + ["bool", "float"]))
            columns[name] = draw(row_columns(lengths if name != "extra" else [2] * total, form, element))
    rows = [{name: column[i * choices : (i + 1) * choices] for name, column in columns.items()} for i in range(count)]
    if choices and draw(st.integers(0, 4)) == 0:
        rows = [{name: _nested(draw, nested) for name, nested in row.items()} for row in rows]
    labels = [draw(st.integers(0, 3)) for _ in range(count)] if draw(st.integers(0, 3)) else draw(number_columns(count))
    name = draw(st.sampled_from(["label", "labels", "labels"]))
    first = draw(st.booleans())
    rows = [{name: label, **row} if first else {**row, name: label} for row, label in zip(rows, labels, strict=True)]
    if draw(st.integers(0, 3)) == 0:
        _spoil(draw, rows)
    # Older versions take the label out of the features, which raises an error for these.
    wrapper = WRAPPERS[draw(st.sampled_from(["dict"] * 5 + sorted(WRAPPERS.keys() - {"proxy", "ChainMap"})))]
    return [wrapper(row) for row in rows]


@given(tokenizers(), examples(), CHOICE_OPTIONS, st.booleans(), st.sampled_from([None] * 6 + ["pt", "np", "wrong"]))
def test_multiple_choice(tokenizer, batch, options, warned, per_call):
    # 4.x warns about padding with a fast tokenizer, once.
    tokenizer.deprecation_warnings["Asking-to-pad-a-fast-tokenizer"] = warned
    reference, collator = both("DataCollatorForMultipleChoice", tokenizer, **options)
    assert_identical(lambda rows: reference(rows, per_call), lambda rows: collator(rows, per_call), batch)


@given(tokenizers(), st.lists(examples(), min_size=2, max_size=5), CHOICE_OPTIONS, st.booleans())
def test_batch_after_batch(tokenizer, batches, options, warned):
    tokenizer.deprecation_warnings["Asking-to-pad-a-fast-tokenizer"] = warned
    reference, collator = both("DataCollatorForMultipleChoice", tokenizer, **options)
    for batch in [*batches, *batches]:
        assert_identical(reference, collator, batch)
        tokenizer.padding_side = "left" if tokenizer.padding_side == "right" else "right"


def test_known_batches_are_made_in_one_call():
    """The number of examples and of choices, the width and the order of keys may differ."""
    reference, collator = both("DataCollatorForMultipleChoice", make_tokenizer())
    for count, choices, length in [(2, 3, 4), (2, 3, 4), (1, 2, 7), (3, 1, 1), (2, 2, 0), (1, 4, 2)]:
        batch = [{"input_ids": [[5] * length] * choices, "label": row} for row in range(count)]
        assert_identical(reference, collator, batch)
        if length:
            known = collator.__dict__["_quadrat_pt"](collator, batch)
            assert known["input_ids"].shape == (count, choices, length)
            assert known["labels"].tolist() == list(range(count))
    run = collator.__dict__["_quadrat_pt"]
    assert run(collator, [{"input_ids": [[5]], "labels": 0}]) is None
    assert run(collator, [{"input_ids": [[5]], "label": 0, "labels": 0}]) is None
    assert run(collator, [{"input_ids": [[5], [6]], "label": 0}, {"input_ids": [[5]], "label": 0}]) is None
    assert run(collator, []) is None


CHANGES: dict[str, Any] = {
    "nothing": lambda collator: None,
    "side": lambda collator: setattr(collator.tokenizer, "padding_side", "left"),
    "wrong side": lambda collator: setattr(collator.tokenizer, "padding_side", "middle"),
    "pad token": lambda collator: setattr(collator.tokenizer, "pad_token", "[EOS]"),
    "no pad token": lambda collator: setattr(collator.tokenizer, "pad_token", None),
    "token type": lambda collator: setattr(collator.tokenizer, "_pad_token_type_id", 3),
    "new pad token": lambda collator: collator.tokenizer.add_special_tokens({"pad_token": "[NEW]"}),
    "main input": lambda collator: collator.tokenizer.model_input_names.insert(0, "token_type_ids"),
    "no mask": lambda collator: setattr(collator.tokenizer, "model_input_names", ["input_ids"]),
    "mask dropped in place": lambda collator: collator.tokenizer.model_input_names.remove("attention_mask"),
    "limit of the model": lambda collator: setattr(collator.tokenizer, "model_max_length", 7),
    "no limit": lambda collator: setattr(collator.tokenizer, "model_max_length", int(1e30)),
    "own _pad": lambda collator: setattr(collator.tokenizer, "__class__", PadsInItsOwnWay),
    "pad of the instance": lambda collator: setattr(collator.tokenizer, "pad", lambda *a, **k: {"input_ids": 1}),
    "strategies of the instance": lambda collator: setattr(
        collator.tokenizer, "_get_padding_truncation_strategies", lambda **k: ("longest", None, None, {})
    ),
    "multiple": lambda collator: setattr(collator, "pad_to_multiple_of", 8),
    "bool for int": lambda collator: setattr(collator, "pad_to_multiple_of", True),
    "max_length": lambda collator: (setattr(collator, "padding", "max_length"), setattr(collator, "max_length", 9)),
    "length": lambda collator: setattr(collator, "max_length", 8),
    "padding": lambda collator: setattr(collator, "padding", True),
    "no padding": lambda collator: setattr(collator, "padding", False),
    "one for True": lambda collator: setattr(collator, "padding", 1),
    "numpy": lambda collator: setattr(collator, "return_tensors", "np"),
    "label": lambda collator: setattr(collator, "label_pad_token_id", -1),
    "float label": lambda collator: setattr(collator, "label_pad_token_id", -1.0),
    "tokenizer": lambda collator: setattr(collator, "tokenizer", make_tokenizer(padding_side="left")),
}
# Of which the tokenizer says something, or asks its limit for the width.
WIDTHS: list[dict[str, Any]] = [
    *({"padding": "max_length", "max_length": length} for length in (9, None, 0)),
    {"padding": "max_length", "max_length": 6, "pad_to_multiple_of": 4},
    *({"padding": padding, "max_length": 5} for padding in (True, "longest")),
    *({"padding": padding, "max_length": 5, "pad_to_multiple_of": 4} for padding in (False, "do_not_pad")),
]


def said_of_the_width(collator: Any, batch: list[Any]) -> list[str]:
    _, (messages, _) = observed(collator, copy.deepcopy(batch))
    return [text for _, text in messages if "max_length" in text]  # torch has its own


@pytest.mark.parametrize(
    "name", ["DataCollatorWithPadding", "DataCollatorForTokenClassification", "DataCollatorForSeq2Seq"]
)
@given(
    st.just({}) | st.sampled_from(WIDTHS),
    st.lists(
        st.tuples(features() | features(labels="labels"), st.sampled_from(["nothing"] * 9 + sorted(CHANGES))),
        min_size=2,
        max_size=6,
    ),
    st.booleans(),
)
def test_changes_between_batches(name, options, steps, anew):
    """Of one collator, or of a new one for each batch, which shares what the others know."""
    tokenizers_of_both = [make_tokenizer(model_max_length=12) for _ in range(2)]
    reference, collator = (
        getattr(module, name)(tokenizer, **options)
        for module, tokenizer in zip((transformers, quadrat), tokenizers_of_both, strict=True)
    )
    for batch, change in steps:
        collator = copy.copy(collator) if anew else collator
        assert_identical(reference, collator, batch)
        assert said_of_the_width(reference, batch) == said_of_the_width(collator, batch)
        for instance in (reference, collator):
            if not (change == "mask dropped in place" and "attention_mask" not in instance.tokenizer.model_input_names):
                CHANGES[change](instance)
    for batch, _ in steps:
        assert_identical(reference, collator, batch)


@pytest.mark.parametrize("name", ["DataCollatorWithPadding", "DataCollatorForLanguageModeling"])
@pytest.mark.parametrize("framework", ["pt", "np"])
def test_tokenizers_without_a_backend(name, framework):
    reference, collator = (
        getattr(module, name)(PerceiverTokenizer(), return_tensors=framework) for module in (transformers, quadrat)
    )
    rows = [{"input_ids": list(range(5, 5 + n)), "attention_mask": [1] * n} for n in (20, 11, 27)]
    before = quadrat.stats()
    assert_identical(reference, collator, rows, calls=3)
    assert quadrat.stats()[:3] == (before.compiled + 3, before.remembered + 2, before.fell_back)
    for instance in (reference, collator):
        instance.tokenizer.add_special_tokens({"pad_token": "[NEW]", "mask_token": "[OTHER]"})
    assert_identical(reference, collator, rows)
    assert quadrat.stats().remembered == before.remembered + 3
