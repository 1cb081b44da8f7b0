"""A batch of an ArrowDataset is a list of dicts to whoever looks at it: what is changed in it is what is collated."""

import copy
import gc
import json
import marshal
import pickle
import weakref

import datasets
import numpy as np
import pandas
import polars
import pyarrow as pa
import pytest
import transformers
import yaml
from accelerate.utils import send_to_device
from hypothesis import given
from hypothesis import strategies as st
from torch.utils import _pytree

import quadrat
from quadrat.input.rows import Rows, rows_of
from support import samples
from support.compare import assert_identical, frozen

SMALL = st.integers(0, 3)


def batch_of(name, count=4):
    """Features for a collator, as plain dicts: those of its sample, in turn, and a column it has no use for."""
    sample = samples.batch(name)
    return [copy.deepcopy(sample[row % len(sample)]) for row in range(count)]


def rows_with(features):
    """The same features, as an ArrowDataset gives them."""
    columns = {name: [feature[name] for feature in features] for name in features[0]}
    return quadrat.ArrowDataset(datasets.Dataset.from_dict(columns)).__getitems__(range(len(features)))


# Each is done to a list of dicts and to Rows, with a small number `n`, and leaves `features` to go on with.
EDITS = {
    "nothing": "pass",
    "look at one": "features[n % len(features)]",
    "look at all": "list(features)",
    "truncate": "for row in features: row.update({k: v[: n + 1] for k, v in row.items() if isinstance(v, list)})",
    "lengthen in place": "[v.extend(v[:n]) for row in features for v in row.values() if isinstance(v, list)]",
    "pop a column": "[row.pop('attention_mask', None) for row in features]",
    "new column": "[row.update(extra=n) for row in features]",
    "edit the first": "features[0]['input_ids'][0] = 7 + n",
    "edit the last": "features[-1]['input_ids'][-1] = 7 + n",
    "replace a row": "features[n % len(features)] = copy.deepcopy(features[-1])",
    "pop and append": "features.append(features.pop(n % len(features)))",
    "delete": "del features[n % len(features)]",
    "insert": "features.insert(n, copy.deepcopy(features[0]))",
    "extend": "features.extend(copy.deepcopy(row) for row in features[:n])",
    "assign a slice": "features[n:] = [copy.deepcopy(row) for row in features[n:]][::-1]",
    "reverse": "features.reverse()",
    "sort": "features.sort(key=lambda row: (len(row['input_ids']) + n) % 3)",
    "slice": "features = features[: n + 1]",
    "slice with a step": "features = features[:: (2, -1, 3, -2)[n]]",
    "add": "features = features + features[:n]",
    "add to a list": "features = [copy.deepcopy(features[n % len(features)]), *features[:1]] + features",
    "add in place": "features += features[:n]",
    "repeat": "features = features * (1 + n % 2)",
    "edit a slice": "for row in features[n::2]: row['input_ids'] = row['input_ids'][:2]",
    "edit before a look elsewhere": """
part, other = features[n:], features[: n + 1]
for row in other: row["input_ids"] = row["input_ids"][::-1]
features = part""",
    "list of them": "features = [row for row in features if len(row['input_ids']) > n]",
    "copy": "features = copy.copy(features)",
    "deepcopy": "features = copy.deepcopy(features)",
    "pickle": "features = pickle.loads(pickle.dumps(features))",
}
COMPILED = {name: compile(code, name, "exec") for name, code in EDITS.items()}
PROGRAMS = st.lists(st.tuples(st.sampled_from(sorted(EDITS)), SMALL), max_size=5)


def carried_out(program, features):
    for edit, n in program:
        if len(features) == 0:
            break
        names = {"features": features, "n": n, "copy": copy, "pickle": pickle}
        exec(COMPILED[edit], names)
        features = names["features"]
    return features


def same_outcome(reference, collator, plain, rows):
    # 4.x takes labels out of the features, and finds none where a row is there twice.
    features = [copy.deepcopy(feature) for feature in plain]
    assert_identical(reference, collator, features, given=rows, calls=1)


@pytest.mark.parametrize("name", samples.CLASSES)
@given(PROGRAMS, st.integers(1, 6))
def test_edits_are_collated(name, program, count):
    reference, collator = samples.pair(name)
    plain, rows = batch_of(name, count), rows_with(batch_of(name, count))
    same_outcome(reference, collator, batch_of(name), rows_with(batch_of(name)))  # now batches like it are known
    plain, rows = carried_out(program, plain), carried_out(program, rows)
    same_outcome(reference, collator, plain, rows)
    assert len(rows) == len(plain)
    assert frozen(list(rows)) == frozen(plain)


@pytest.mark.parametrize(
    "given_as",
    [
        pa.table,
        pa.RecordBatch.from_pydict,
        polars.DataFrame,
        lambda columns: {name: pa.array(values) for name, values in columns.items()},
        lambda columns: {name: np.array(values) for name, values in columns.items()},
        lambda columns: {"input_ids": quadrat.Ragged.from_rows(columns["input_ids"]), "label": columns["label"]},
    ],
    ids=["table", "record batch", "polars", "dict of arrow", "dict of arrays", "dict with a Ragged"],
)
@given(PROGRAMS)
def test_rows_of_any_columns_keep_edits(given_as, program):
    columns = {"input_ids": [[5, 6, 7], [8, 9, 10], [11, 12, 13]], "label": [0, 1, 2]}
    plain = [{name: copy.deepcopy(values[row]) for name, values in columns.items()} for row in range(3)]
    rows = carried_out(program, rows_of(given_as(columns)))
    plain = carried_out(program, plain)
    assert frozen(list(rows)) == frozen(plain)
    reference, collator = (samples.make(module, "DataCollatorWithPadding") for module in (transformers, quadrat))
    same_outcome(reference, collator, plain, rows)


@pytest.mark.parametrize("name", samples.CLASSES)
def test_the_collators_of_transformers_take_it(name):
    if not hasattr(transformers, name):
        pytest.skip(f"this transformers has no {name}")
    collator, other = samples.make(transformers, name), samples.make(transformers, name)
    same_outcome(collator, other, batch_of(name), rows_with(batch_of(name)))


# Ways through a collator that ask more of the features than their columns: (name, options, extra columns).
FURTHER = {
    "language modelling without padding": ("DataCollatorForLanguageModeling", {"padding_free": True}, {}),
    "causal, without padding": ("DataCollatorForLanguageModeling", {"mlm": False, "padding_free": True}, {}),
    "masked by counter": ("DataCollatorForLanguageModeling", {"rng": "philox", "row_key": "key"}, {"key": 3}),
    "token labels without padding": ("DataCollatorForTokenClassification", {"padding_free": True}, {}),
    "scalar labels": ("DataCollatorWithFlattening", {"scalar_labels": True}, {"label": 1}),
    "values that pad": ("DataCollatorWithPadding", {"pad_values": {"extra": 0}}, {"extra": [1, 2]}),
    "a column converted by the reference": ("DataCollatorWithPadding", {}, {"extra": [[1], [2]]}),
    "a column stacked by the reference": ("DefaultDataCollator", {}, {"extra": [[1], [2]]}),
    "text that is left out": ("DefaultDataCollator", {}, {"extra": "some text"}),
    "no labels": ("DataCollatorForSeq2Seq", {}, {"labels": None}),
}


@pytest.mark.parametrize(
    ("name", "options", "further"),
    [(name, {}, {}) for name in samples.CLASSES] + list(FURTHER.values()),
    ids=[*samples.CLASSES, *FURTHER],
)
def test_collating_is_no_look(name, options, further):
    """Neither a batch of a new kind nor one that is known makes the dicts: each costs its columns alone."""
    collator, other = samples.make(quadrat, name, **options), samples.make(quadrat, name, **options)
    features = [{**feature, **further} for feature in batch_of(name)]
    if options.get("padding_free"):
        features = [{key: row for key, row in feature.items() if key != "score"} for feature in features]
    for _ in range(2):
        rows = rows_with(features)
        same_outcome(other, collator, features, rows)
        assert not rows.handed_out


def test_a_row_is_the_same_at_each_look():
    rows = rows_with(batch_of("DataCollatorWithPadding"))
    part, step = rows[1:3], rows[::-2]
    assert not rows.handed_out, "a slice makes no dicts"
    assert rows[1] is rows[1]
    assert list(rows)[1] is rows[1] is rows[-3]
    assert part[0] is rows[1]
    assert step[0] is rows[3]
    assert step[1] is part[0]
    assert next(iter(rows)) is rows[0]
    assert next(reversed(rows)) is rows[3]


def test_parts_of_a_batch_that_is_gone_share_their_rows():
    rows = rows_with(batch_of("DataCollatorWithPadding"))
    part, other = rows[:3], rows[1:][::2]
    del rows
    other[0]["label"] = 77
    assert part[1]["label"] == 77
    assert samples.make(quadrat, "DataCollatorWithPadding")(part)["labels"].tolist()[1] == 77


def test_it_is_a_list_to_python():
    plain = batch_of("DataCollatorWithPadding")
    rows = rows_with(plain)
    assert isinstance(rows, list)
    assert type(rows) is Rows
    assert "4 rows" in repr(rows)
    assert len(rows[2:1]) == 0
    assert rows == plain
    assert plain == rows
    assert rows == rows_with(plain)
    assert rows != plain[1:]
    assert plain[1] in rows
    assert rows.index(plain[2]) == 2
    assert rows.count(plain[0]) == 1
    assert plain + rows == 2 * rows == plain * 2
    assert rows.copy() == plain
    with pytest.raises(IndexError):
        rows[len(plain)]
    with pytest.raises(TypeError):
        rows["input_ids"]
    with pytest.raises(TypeError):
        hash(rows)
    rows.clear()
    assert not rows
    assert str(rows) == "Rows([])"


@pytest.mark.parametrize("write", [json.dumps, marshal.dumps, yaml.safe_dump, pandas.io.json.ujson_dumps])
def test_c_code_raises(write):
    """It reads the memory of lists, so it takes the list that the rows make."""
    features = [{"input_ids": [5, 6], "label": 1}, {"input_ids": [7], "label": 0}]
    rows = rows_with(features)
    for wrapped in (rows, [rows], {"rows": rows}):
        with pytest.raises((TypeError, ValueError, yaml.YAMLError)):
            write(wrapped)
    assert list(rows) == features
    assert write(list(rows))


def test_trees_of_torch():
    features = [{"input_ids": [5, 6], "label": 1}, {"input_ids": [7], "label": 0}]
    assert _pytree.tree_map(lambda leaf: leaf + 1, [rows_with(features)]) == [
        [{"input_ids": [6, 7], "label": 2}, {"input_ids": [8], "label": 1}]
    ]


def test_it_has_all_that_a_list_has():
    has_own = [name for name in dir(list) if getattr(list, name) is not getattr(object, name, None)]
    lacking = {name for name in has_own if getattr(Rows, name, None) is getattr(object, name, None)}
    assert lacking == {"__class_getitem__", "__getattribute__", "__sizeof__"}  # which no features are asked for


def test_errors_name_the_rows_as_they_are():
    rows = rows_with(batch_of("DataCollatorWithPadding"))
    rows[2]["input_ids"][1] = None
    with pytest.raises(ValueError, match="column 'input_ids', row 2, position 1 is None"):
        samples.make(quadrat, "DataCollatorWithPadding")(rows)


def test_rows_that_hold_themselves_are_freed():
    class Marker:
        pass

    marker = Marker()
    gone = weakref.ref(marker)
    rows = rows_with(batch_of("DataCollatorWithPadding"))
    rows[0]["batch"], rows[1]["marker"] = rows, marker
    del rows, marker
    gc.collect()
    assert gone() is None


def test_lists_of_the_same_type():
    """Others make a list anew as `type(rows)(items)`: accelerate and Trainer, to move a batch to a device."""
    plain = batch_of("DataCollatorWithPadding")
    moved = send_to_device(rows_with(plain), "cpu")
    assert isinstance(moved, list)
    assert list(moved) == plain
    moved[0]["label"] = 77
    assert quadrat.DataCollatorWithPadding(samples.tokenizer())(moved)["labels"][0] == 77
    rows = rows_with(plain)
    kind = type(rows)
    assert kind() == []
    assert kind(rows) == kind(row for row in plain) == plain
    assert [*kind([1.5, "x"])[1:], 2] == ["x", 2]
    assert pickle.loads(pickle.dumps(kind("ab"))) == ["a", "b"]
    with pytest.raises(TypeError, match="'int' object is not iterable"):
        kind(5)
