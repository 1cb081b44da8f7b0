"""DataCollatorForMultipleChoice == that of the installed transformers."""

from typing import Any

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from support.compare import assert_identical, both
from support.strategies import WRAPPERS, make_tokenizer, number_columns, row_columns, tokenizers

OPTIONS = st.fixed_dictionaries(
    {
        "padding": st.sampled_from([True] * 6 + ["longest", "max_length", False, "do_not_pad", "wrong"]),
        "max_length": st.sampled_from([None, None, None, 4, 9]),
        "pad_to_multiple_of": st.sampled_from([None] * 4 + [1, 4, 8, True, 0]),
        "return_tensors": st.sampled_from(["pt"] * 8 + ["np", None]),
    }
)
NAMES = ["input_ids", "attention_mask", "token_type_ids", "special_tokens_mask", "extra", "score"]


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
        for one in examples:
            one.update(label=0, labels=draw(st.sampled_from([1, [[1], [2], [3], [4]]])))
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
    for name in draw(st.permutations(NAMES)):
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
    wrapper = WRAPPERS[draw(st.sampled_from(["dict"] * 5 + sorted(WRAPPERS)))]
    return [wrapper(row) for row in rows]


@given(tokenizers(), examples(), OPTIONS, st.booleans(), st.sampled_from([None] * 6 + ["pt", "np", "wrong"]))
def test_multiple_choice(tokenizer, batch, options, warned, per_call):
    # 4.x warns about padding with a fast tokenizer, once.
    tokenizer.deprecation_warnings["Asking-to-pad-a-fast-tokenizer"] = warned
    reference, collator = both("DataCollatorForMultipleChoice", tokenizer, **options)
    assert_identical(lambda rows: reference(rows, per_call), lambda rows: collator(rows, per_call), batch)


@given(tokenizers(), st.lists(examples(), min_size=2, max_size=5), OPTIONS, st.booleans())
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
            made = collator.__dict__["_quadrat_pt"](collator, batch)
            assert made["input_ids"].shape == (count, choices, length)
            assert made["labels"].tolist() == list(range(count))
    run = collator.__dict__["_quadrat_pt"]
    assert run(collator, [{"input_ids": [[5]], "labels": 0}]) is None
    assert run(collator, [{"input_ids": [[5]], "label": 0, "labels": 0}]) is None
    assert run(collator, [{"input_ids": [[5], [6]], "label": 0}, {"input_ids": [[5]], "label": 0}]) is None
    assert run(collator, []) is None
