"""`quadrat.data.ray` on what Ray Data gives it: the reference's batch of the same rows given as lists, and packs."""

import copy
import os
import pickle
import secrets
import tempfile
import threading
import time
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
import transformers
from hypothesis import given
from hypothesis import strategies as st

import quadrat
from support.compare import assert_same_batch, generator_states, seed_everything
from support.masking import make_masking_tokenizer
from support.strategies import make_tokenizer
from support.threads import together

ray = pytest.importorskip("ray", reason="Ray Data, which quadrat.data.ray is for, is not installed")

from ray.data._internal.tensor_extensions.arrow import (  # noqa: E402 - the types it makes, without a cluster
    ArrowTensorArray,
    ArrowVariableShapedTensorArray,
)

from quadrat.data.ray import CollateFn, PackBlocks, without_tensor_types  # noqa: E402

pytestmark = pytest.mark.slow

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # it warns of settings that it makes itself
    ray.data.DataContext.get_current().enable_progress_bars = False

NAMES = ("input_ids", "attention_mask", "special_tokens_mask")


@pytest.fixture(scope="module")
def cluster():
    """Ray Data on this machine, with two cores; gone afterwards."""
    # Its folder holds sockets, whose paths must be short.
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory(prefix="ray") as folder:
        patch.setenv("RAY_AUTH_TOKEN", secrets.token_hex(32))  # else it keeps one in the home folder
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        # Of a sanitizer: Ray's servers, which it waits half a minute for, start without it.
        preloaded = os.environ.get("LD_PRELOAD")
        patch.delenv("LD_PRELOAD", raising=False)
        ray.init(
            num_cpus=2,
            include_dashboard=False,
            object_store_memory=80 * 2**20,
            logging_level="error",
            log_to_driver=False,
            runtime_env={"env_vars": {"LD_PRELOAD": preloaded}} if preloaded else None,
            _temp_dir=folder,
        )
        yield ray.data
        ray.shutdown()


def rows_of(lengths: list[int]) -> list[dict[str, Any]]:
    random = np.random.default_rng(sum(lengths))
    return [
        {
            "input_ids": random.integers(7, 400, n).tolist(),
            "attention_mask": [1] * n,
            "special_tokens_mask": random.integers(0, 2, n).tolist(),
            "label": n % 3,
        }
        for n in lengths
    ]


def variable(lists: list[list[int]], dtype: str) -> pa.Array:
    cells = np.empty(len(lists), object)
    cells[:] = [np.array(row, dtype) for row in lists]
    return ArrowVariableShapedTensorArray.from_numpy(cells)


def column(form: str, lists: list[list[int]]) -> Any:
    """Rows of numbers as Ray hands them over; a fixed shape where they have one length."""
    if form in ("list", "large_list"):
        return pa.array(lists, getattr(pa, f"{form}_" if form == "list" else form)(pa.int64()))
    if form in ("fixed", "native") and len({len(row) for row in lists}) == 1 and lists[0]:
        make = ArrowTensorArray.from_numpy if form == "fixed" else pa.FixedShapeTensorArray.from_numpy_ndarray
        return make(np.array(lists, np.int32))
    return variable(lists, "int16" if form == "native" else "int64")


def table_of(form: str, rows: list[dict[str, Any]]) -> pa.Table:
    columns = {name: column(form, [row[name] for row in rows]) for name in NAMES}
    return pa.table({**columns, "label": [row["label"] for row in rows]})


def numpy_batch(rows: list[dict[str, Any]]) -> dict[str, np.ndarray]:
    batch: dict[str, np.ndarray] = {"label": np.array([row["label"] for row in rows])}
    for name in NAMES:
        lists = [np.array(row[name], np.int64) for row in rows]
        if len({len(row) for row in lists}) == 1:
            batch[name] = np.stack(lists)
        else:
            batch[name] = np.empty(len(lists), object)
            batch[name][:] = lists
    return batch


def collators(name: str, seed: int | None = None) -> tuple[Any, Any]:
    """(the reference's, quadrat's)."""
    if name == "padding":
        return transformers.DataCollatorWithPadding(make_tokenizer()), quadrat.DataCollatorWithPadding(make_tokenizer())
    options = {"mlm_probability": 0.4, "seed": seed}
    return tuple(
        module.DataCollatorForLanguageModeling(make_masking_tokenizer(), **options)
        for module in (transformers, quadrat)
    )


def columns_for(name: str) -> tuple[str, ...]:
    return ("input_ids", "attention_mask", "label") if name == "padding" else NAMES


def assert_same(expected: Mapping[str, Any], got: Any) -> None:
    assert type(got) is dict
    assert list(got) == list(expected)
    for key, value in expected.items():
        assert_same_batch(value, got[key], key)


@given(
    lengths=st.lists(st.integers(0, 9), min_size=1, max_size=6) | st.integers(1, 6).map(lambda n: [4] * n),
    form=st.sampled_from(["list", "large_list", "fixed", "native", "variable", "numpy"]),
    name=st.sampled_from(["padding", "masking"]),
    cut=st.integers(0, 5),
)
def test_tables_give_the_batch_of_their_lists(lengths, form, name, cut):
    rows = rows_of(lengths)
    first = min(cut, len(rows) - 1)
    if form == "numpy":
        batch: Any = numpy_batch(rows[first:])
    else:  # a part of two chunks
        batch = pa.concat_tables([table_of(form, rows), table_of(form, rows)]).slice(first, len(rows) - first)
    reference, collator = collators(name)
    collate = CollateFn(collator, columns_for(name))
    features = [{key: row[key] for key in columns_for(name)} for row in rows[first:]]
    for _ in range(2):  # the second time by recipe
        seed_everything(3)
        expected = reference(copy.deepcopy(features))
        states = generator_states()
        seed_everything(3)
        assert_same(expected, collate(batch))
        assert generator_states() == states


@pytest.mark.parametrize("kind", ["lists", "arrays", "arrays of one length", "tokenised by Ray"])
@pytest.mark.parametrize("name", ["padding", "masking"])
def test_batches_of_ray(cluster, name, kind):
    """Two blocks, batches across them, the last one short; masks drawn batch after batch."""
    rows = rows_of([6] * 22 if kind == "arrays of one length" else [3 + n * 7 % 11 for n in range(22)])
    given_to_ray = rows
    if kind.startswith("arrays"):
        given_to_ray = [{**row, **{key: np.array(row[key]) for key in NAMES}} for row in rows]
    dataset = cluster.from_items(given_to_ray, override_num_blocks=2)
    if kind == "tokenised by Ray":
        dataset = cluster.from_items([{"row": n} for n in range(len(rows))], override_num_blocks=2).map_batches(
            lambda batch: {key: [rows[n][key] for n in batch["row"]] for key in rows[0]}, batch_size=11
        )
    reference, collator = collators(name, seed=5)
    collate = CollateFn(collator, columns_for(name))
    got = list(dataset.iter_torch_batches(batch_size=4, collate_fn=collate))
    assert len(got) == 6
    for at, batch in zip(range(0, len(rows), 4), got, strict=True):
        expected = reference([{key: row[key] for key in columns_for(name)} for row in rows[at : at + 4]])
        assert_same(expected, batch)


@pytest.mark.parametrize("name", ["padding", "masks by counter"])
def test_several_threads_of_ray(cluster, name):
    """What does not depend on the batches before is the same in any number of them."""
    rows = rows_of([3 + n * 7 % 11 for n in range(60)])
    if name == "padding":
        reference, collator = collators(name)
    else:
        reference, collator = (
            quadrat.DataCollatorForLanguageModeling(make_masking_tokenizer(), seed=3, rng="philox") for _ in range(2)
        )
    batches = cluster.from_items(rows, override_num_blocks=2).iter_torch_batches(
        batch_size=4, collate_fn=CollateFn(collator, columns_for(name)), prefetch_batches=3
    )
    features = [{key: row[key] for key in columns_for(name)} for row in rows]
    expected = [reference(features[at : at + 4])["input_ids"].tolist() for at in range(0, len(features), 4)]
    got = [batch["input_ids"].tolist() for batch in batches]
    assert sorted(got) == sorted(expected)  # Ray does not promise their order


@pytest.mark.parametrize("overlong", ["truncate", "split"])
def test_packed_blocks_of_ray(cluster, overlong):
    """Each token once, documents kept apart by the collator."""
    rows = [{**row, "input_ids": [100 + n] * len(row["input_ids"])} for n, row in enumerate(rows_of([*range(1, 21)]))]
    packs = cluster.from_items(rows, override_num_blocks=2).map_batches(
        PackBlocks(16, overlong=overlong, columns=NAMES[:2]), batch_format="pyarrow", batch_size=10
    )
    collate = CollateFn(quadrat.DataCollatorWithFlattening(), ["input_ids", "seq_lengths"])
    tokens, documents, widths = [], [], []
    for batch in packs.iter_torch_batches(batch_size=1, collate_fn=collate):
        ids, starts = batch["input_ids"][0], (batch["position_ids"][0] == 0).nonzero().flatten().tolist()
        tokens += ids.tolist()
        documents += [set(part.tolist()) for part in ids.tensor_split(starts[1:])]
        widths.append(len(ids))
    limit = 16 if overlong == "truncate" else 20
    assert sorted(tokens) == sorted(token for row in rows for token in row["input_ids"][:limit])
    assert max(widths) == 16
    assert all(len(document) == 1 for document in documents)
    assert len(documents) == (20 if overlong == "truncate" else 24)


def table_of_types() -> pa.Table:
    types = {"input_ids": pa.list_(pa.int32()), "kind": pa.large_list(pa.uint8()), "weight": pa.list_(pa.float32(), 3)}
    rows = [[1, 2, 3], [4, 5, 6], [7, 8, 9]]
    return pa.table({name: pa.array(rows, kind) for name, kind in types.items()})


@pytest.mark.parametrize("part", [slice(None), slice(1, 3), slice(0, 0)])
def test_packed_blocks_keep_types(part):
    table = table_of_types().slice(part.start or 0, part.stop and part.stop - part.start)
    packed = PackBlocks(6)(table)
    flat = table["input_ids"].combine_chunks().flatten().to_pylist()
    assert packed.schema.types == [
        pa.list_(pa.int32()), pa.large_list(pa.uint8()), pa.list_(pa.float32()), pa.list_(pa.int64()),
    ]  # fmt: skip
    for name in table.column_names:
        assert packed[name].combine_chunks().flatten().to_pylist() == flat
    assert [sum(sizes) for sizes in packed["seq_lengths"].to_pylist()] == list(map(len, packed["kind"].to_pylist()))


@given(
    lengths=st.lists(st.integers(0, 20), min_size=1, max_size=40),
    limit=st.integers(1, 25),
    strategy=st.sampled_from(["best_fit", "first_fit", "in_order"]),
)
def test_packed_blocks_are_the_packs_of_pack(lengths, limit, strategy):
    rows = [{"input_ids": [n] * length} for n, length in enumerate(lengths)]
    table = pa.Table.from_pylist(rows, pa.schema({"input_ids": pa.list_(pa.int64())}))
    got = PackBlocks(limit, strategy=strategy, overlong="truncate")(table).to_pydict()
    packs = quadrat.batching.plan_packs(lengths, limit, strategy, overlong="truncate").to_lists()
    assert got["input_ids"] == [[token for n in pack for token in rows[n]["input_ids"][:limit]] for pack in packs]
    assert got["seq_lengths"] == [[min(lengths[n], limit) for n in pack] for pack in packs]


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"input_ids": [[3], [1, 2], None]}, "row 2 of column 'input_ids' is null"),
        ({"input_ids": [[3], [1, 2], [1, None, 2]]}, "'input_ids': row 2, position 1"),
        ({"input_ids": [[1, 2]], "text": ["a"]}, r"'text' does not hold rows of numbers.*columns=\[\.\.\.\]"),
        ({"input_ids": [[3], [1, 2]], "other": [[3], [1]]}, "row 1 has 2 tokens in 'input_ids' and 1 in 'other'"),
        ({"input_ids": [[1, 2, 3, 4, 5]]}, "row 0 has 5 tokens"),
        ({"tokens": [[1, 2]]}, "no column 'input_ids'"),
    ],
)
def test_blocks_that_cannot_be_packed(table, message):
    with pytest.raises((TypeError, ValueError), match=message):
        PackBlocks(4)(pa.table(table))


def test_options_of_packed_blocks_may_be_edited():
    blocks, table = PackBlocks(8), pa.table({"input_ids": [[5] * 3, [6] * 2]})
    blocks.max_length = 4
    assert blocks(table).to_pydict() == PackBlocks(4)(table).to_pydict() != PackBlocks(8)(table).to_pydict()


def test_wrong_arguments_of_packed_blocks():
    for options in ({"strategy": "worst"}, {"overlong": "alone"}, {"columns": ["labels"]}, {"max_length": 0}):
        with pytest.raises(ValueError, match=r"must be|must contain"):
            PackBlocks(**{"max_length": 4, **options})
    with pytest.raises(TypeError, match=r"give \['input_ids'\]"):
        PackBlocks(4, columns="input_ids")


def test_errors_come_through_ray(cluster):
    rows = [{"input_ids": [5, 6]}, {"input_ids": None}]
    batches = cluster.from_items(rows).iter_torch_batches(collate_fn=CollateFn(collators("padding")[1]))
    with pytest.raises((TypeError, ValueError), match="'input_ids', row 1"):
        list(batches)


def test_tensors_of_more_dimensions_are_nested_lists():
    numbers = np.arange(24).reshape(4, 2, 3)
    ragged = np.empty(4, object)
    ragged[:] = [numbers[n, :, : n % 3 + 1] for n in range(4)]
    table = pa.table(
        {
            "own": ArrowTensorArray.from_numpy(numbers),
            "native": pa.FixedShapeTensorArray.from_numpy_ndarray(numbers),
            "flags": ArrowTensorArray.from_numpy(numbers % 2 == 0),
            "ragged": ArrowVariableShapedTensorArray.from_numpy(ragged),
            "label": [1, 2, 3, 4],
        }
    )
    lists = without_tensor_types(table.slice(1)).to_pydict()
    assert lists == {
        "own": numbers[1:].tolist(),
        "native": numbers[1:].tolist(),
        "flags": (numbers[1:] % 2 == 0).tolist(),
        "ragged": [cell.tolist() for cell in ragged[1:]],
        "label": [2, 3, 4],
    }
    got = CollateFn(quadrat.default_data_collator, ["own", "label"])(table)
    assert got["own"].tolist() == numbers.tolist()
    assert got["labels"].tolist() == [1, 2, 3, 4]


def test_nulls_among_tensors_stay_nulls():
    cells = np.empty(3, object)
    cells[:] = [np.arange(2), np.arange(3), np.arange(1)]
    whole = ArrowVariableShapedTensorArray.from_numpy(cells)
    parts = [whole.storage.field(n) for n in range(2)]
    mask = pa.array([False, True, False])
    holed = pa.ExtensionArray.from_storage(whole.type, pa.StructArray.from_arrays(parts, ["data", "shape"], mask=mask))
    lists = without_tensor_types(pa.table({"input_ids": holed}))
    assert lists.to_pydict() == {"input_ids": [[0, 1], None, [0]]}
    with pytest.raises((TypeError, ValueError), match="'input_ids', row 1"):
        CollateFn(collators("padding")[1])(pa.table({"input_ids": holed}))


def test_lists_and_tensors_of_one_dimension_are_left_where_they_are():
    rows = rows_of([3, 5])
    for form in ("list", "variable"):
        table = table_of(form, rows)
        lists = without_tensor_types(table)
        before, after = (one.column("input_ids").chunk(0) for one in (table, lists))
        values = before.storage.field("data").values if form == "variable" else before.values
        assert after.values.buffers()[1].address == values.buffers()[1].address


def test_columns_that_are_not_there():
    collate = CollateFn(collators("padding")[1], ["input_ids", "nonsense"])
    for batch in (table_of("list", rows_of([2])), numpy_batch(rows_of([2]))):
        with pytest.raises(ValueError, match=r"no column 'nonsense'; it has .*'input_ids'"):
            collate(batch)


def test_arguments_that_are_wrong():
    reference, collator = collators("padding")
    with pytest.raises(TypeError, match="must be callable, not int"):
        CollateFn(3)
    with pytest.raises(TypeError, match=r"quadrat\.from_transformers"):
        CollateFn(reference)
    with pytest.raises(TypeError, match=r"give \['input_ids'\]"):
        CollateFn(collator, "input_ids")


def test_a_batch_that_is_not_a_mapping_passes():
    assert CollateFn(lambda table: table.num_rows)(table_of("list", rows_of([2, 3]))) == 2


def test_a_deferred_batch_is_made_for_ray():
    rows = [{key: row[key] for key in columns_for("padding")} for row in rows_of([2, 3])]
    collator = quadrat.DataCollatorWithPadding(make_tokenizer(), deferred=True)
    assert_same(collators("padding")[0](rows), CollateFn(collator)(pa.Table.from_pylist(rows)))


def test_pickles():
    rows = rows_of([2, 3])
    collate = CollateFn(collators("padding")[1], columns_for("padding"))
    expected = collate(table_of("list", rows))
    again = pickle.loads(pickle.dumps(collate))
    assert again.columns == collate.columns
    assert_same(expected, again(table_of("list", rows)))


def test_one_thread_at_a_time():
    """Two threads that draw at once would draw the same masks."""
    inside, most = [], []

    def collator(table):
        inside.append(threading.get_ident())
        most.append(len(inside))
        time.sleep(0.01)
        inside.pop()
        return {"input_ids": torch.zeros(1)}

    collate = CollateFn(collator)
    together(*[lambda: collate(table_of("list", rows_of([2])))] * 6)
    assert most == [1] * 6
