"""align_to, total_length, continue_positions and names of the collators and of `flatten`, against `align`."""

from typing import Any

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given

import quadrat
from support.compare import assert_same_batch, frozen, seed_everything
from support.masking import make_masking_tokenizer
from support.strategies import ROW_FORMS, WRAPPERS, make_tokenizer

pytestmark = pytest.mark.same_everywhere

CONSUMERS = (None, "transformers", "varlen_attn", "flash_attn", "megatron", "mask")
LENGTHS = st.lists(st.integers(1, 9) | st.just(33), min_size=1, max_size=5)


@st.composite
def layouts(draw: Any) -> dict[str, Any]:
    align_to = draw(st.sampled_from([None, 1, 4, 8]))
    options = {"align_to": align_to, "kwargs_for": draw(st.sampled_from(CONSUMERS))}
    how = draw(st.sampled_from(["", "pad_to_multiple_of", "total_length"]))
    if how:
        options[how] = (align_to or 3) * draw(st.sampled_from([1, 2, 3])) * (200 if how == "total_length" else 1)
    return {**options, "continue_positions": draw(st.booleans()), "position_ids_start": draw(st.sampled_from([0, 2]))}


def rows_of(lengths: list[int], labels: bool) -> list[dict[str, Any]]:
    rows = [{"input_ids": [10 * row + i for i in range(length)]} for row, length in enumerate(lengths)]
    for row in rows:
        row["weights"] = [float(i) for i in row["input_ids"]]
        if labels:
            row["labels"] = [i + 1000 for i in row["input_ids"]]
    return rows


def formed(batch: list[dict[str, Any]], form: str, wrapper: str) -> list[Any]:
    """The rows in one of the forms, their weights in lists."""
    rows = [
        {name: ROW_FORMS[form](row) if name != "weights" else row for name, row in feature.items()} for feature in batch
    ]
    return [WRAPPERS[wrapper](feature) for feature in rows]


def expected_of(rows: list[dict[str, Any]], layout: dict[str, Any], framework: str, fill: int = 0) -> dict[str, Any]:
    """What `align` makes of the columns, or, where rows are not padded one by one, of their last row made longer."""
    lengths = [len(row["input_ids"]) for row in rows]
    bounds = np.array([sum(lengths[:row]) for row in range(len(rows) + 1)])
    ids = np.array([i for row in rows for i in row["input_ids"]])
    labels = np.array([i for row in rows for i in (-100, *row.get("labels", row["input_ids"])[1:])])
    weights = np.array([i for row in rows for i in row["weights"]], np.float32 if framework == "pt" else np.float64)
    aligned, multiple = layout["align_to"] is not None, layout.get("pad_to_multiple_of") or 1
    places = [-(-length // (layout["align_to"] or 1)) * (layout["align_to"] or 1) for length in lengths]
    aligned_rows = quadrat.align(
        bounds, ids, labels, weights,
        pad_to_multiple_of=layout["align_to"] or 1,
        total_length=layout.get("total_length") or -(-sum(places) // multiple) * multiple,
        padding_value=(fill, -100, 0.5),
        position_ids_start=layout["position_ids_start"],
        continue_positions=layout["continue_positions"],
    )  # fmt: skip
    starts = aligned_rows.cu_seqlens_padded if aligned else aligned_rows.cu_seqlens
    longest = aligned_rows.max_length_padded if aligned else aligned_rows.max_length

    def names_of(boundaries: str, longest_one: str) -> dict[str, Any]:
        return {f"{boundaries}_{role}": starts for role in "qk"} | {f"{longest_one}_{role}": longest for role in "qk"}

    batch = {
        "input_ids": aligned_rows.values[0][None],
        "labels": aligned_rows.values[1][None],
        "position_ids": aligned_rows.position_ids[None],
        "seq_idx": aligned_rows.seq_idx[None],
    }
    batch |= {
        None: {},
        "transformers": names_of("cu_seq_lens", "max_length"),
        "varlen_attn": names_of("cu_seq", "max"),
        "flash_attn": names_of("cu_seqlens", "max_seqlen"),
        "megatron": {
            "qkv_format": "thd",
            "cu_seqlens_q": aligned_rows.cu_seqlens,
            "cu_seqlens_kv": aligned_rows.cu_seqlens,
            **({"cu_seqlens_q_padded": starts, "cu_seqlens_kv_padded": starts} if aligned else {}),
            "max_seqlen_q": longest,
            "max_seqlen_kv": longest,
            "total_tokens": len(aligned_rows.position_ids),
        },
        "mask": {"attention_mask": (aligned_rows.seq_idx[None] + 1).astype(np.int64)},
    }[layout["kwargs_for"]]
    if aligned:
        batch["padding_mask"] = aligned_rows.padding_mask[None]
    batch["weights"] = aligned_rows.values[2][None]
    if framework == "pt":
        return {
            name: torch.from_numpy(value) if isinstance(value, np.ndarray) else value for name, value in batch.items()
        }
    return batch


@pytest.mark.parametrize("framework", ["pt", "np"])
@given(
    lengths=LENGTHS,
    labels=st.booleans(),
    layout=layouts(),
    form=st.sampled_from(["list", "array", "tensor"]),
    wrapper=st.sampled_from(sorted(set(WRAPPERS) - {"Mapping"})),
    fill=st.integers(0, 9),
)
def test_the_collator(framework, *, lengths, labels, layout, form, wrapper, fill):
    rows = rows_of(lengths, labels)
    pad_values = {"weights": 0.5, "input_ids": fill}
    options = {"return_seq_idx": True, "pad_values": pad_values, "return_tensors": framework, **layout}
    collator = quadrat.DataCollatorWithFlattening(**options)
    expected = expected_of(rows, layout, framework, fill)
    features = formed(rows, form, wrapper)
    before = frozen(features)
    for _ in range(2):  # anew, and known
        assert_same_batch(expected, collator(features))
    assert frozen(features) == before
    assert not vars(collator).get("_quadrat_fell_back")
    if framework == "pt":
        deferred = quadrat.DataCollatorWithFlattening(**options, deferred=True)
        for _ in range(2):
            assert_same_batch(expected, deferred(rows).to("cpu"))


@given(lengths=LENGTHS, layout=layouts())
def test_arrow(*, lengths, layout):
    rows = rows_of(lengths, labels=False)
    collator = quadrat.DataCollatorWithFlattening(return_seq_idx=True, pad_values={"weights": 0.5}, **layout)
    for _ in range(2):
        assert_same_batch(collator(rows), collator(pa.Table.from_pylist(rows)))


@given(lengths=LENGTHS, layout=layouts(), as_tensor=st.booleans())
def test_the_function(*, lengths, layout, as_tensor):
    rows = rows_of(lengths, labels=False)
    options = dict(layout)
    options["pad_to_multiple_of"] = options.pop("pad_to_multiple_of", None)
    framework = "pt" if as_tensor else "np"
    flat_rows = quadrat.flatten([row["input_ids"] for row in rows], return_tensors=framework, **options)
    expected = expected_of(rows, layout, framework)
    batch = {name: value for name, value in expected.items() if name not in ("labels", "weights", "padding_mask")}
    if layout["kwargs_for"] is None:
        flat_rows = {
            "input_ids": flat_rows.values,
            "position_ids": flat_rows.position_ids,
            "seq_idx": flat_rows.seq_idx,
        }
    else:
        flat_rows["input_ids"] = flat_rows.pop("values")
        flat_rows.pop("padding_mask", None)
    for name, value in flat_rows.items():
        flat = name in ("input_ids", "position_ids", "seq_idx", "attention_mask")
        assert_same_batch({name: batch[name]}, {name: value[None] if flat else value})
    assert set(flat_rows) == set(batch)


@given(lengths=LENGTHS, layout=layouts())
def test_collators_without_padding(*, lengths, layout):
    """Those that pad by a tokenizer, too: their labels beside."""
    rows = [{"input_ids": row["input_ids"]} for row in rows_of(lengths, labels=False)]
    flat = quadrat.DataCollatorWithFlattening(return_seq_idx=True, **layout)(rows)
    options = {"pad_to_multiple_of": layout.pop("pad_to_multiple_of", None)}
    options["padding_free"] = quadrat.Flattening(return_seq_idx=True, **layout)
    causal = quadrat.DataCollatorForLanguageModeling(make_tokenizer(), mlm=False, mask_padding="length", **options)
    assert_same_batch(flat, causal(rows))
    labelled = [{**row, "labels": row["input_ids"]} for row in rows]
    tokens = quadrat.DataCollatorForTokenClassification(make_tokenizer(), **options)(labelled)
    assert_same_batch({**flat, "labels": tokens["labels"]}, tokens)
    kept = flat["seq_idx"] >= 0
    assert torch.equal(tokens["labels"][kept], flat["input_ids"][kept])
    assert (tokens["labels"][~kept] == -100).all()


@pytest.mark.parametrize("framework", ["pt", "np"])
def test_masked_rows_of_a_fixed_total(framework):
    rows, masked = [{"input_ids": list(range(3, 12))}, {"input_ids": [4] * 20}], []
    lengths = {"pad_to_multiple_of": 32, "padding_free": True}, {"padding_free": quadrat.Flattening(total_length=32)}
    for length in lengths:
        options = {**length, "return_tensors": framework, "mlm_probability": 0.5}
        seed_everything(0)
        masked.append(quadrat.DataCollatorForLanguageModeling(make_masking_tokenizer(), **options)(rows))
    assert masked[0]["input_ids"].shape == (1, 32)
    assert_same_batch(*masked)


ROWS = [{"input_ids": [1, 2, 3]}, {"input_ids": [4]}]


NAMES = "kwargs_for must be one of 'transformers', 'varlen_attn', 'flash_attn', 'megatron', 'mask', or None"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"kwargs_for": "te"}, NAMES),
        ({"align_to": 0}, "align_to must be a positive int"),
        ({"align_to": 2.0}, "align_to must be an? (positive )?int"),
        ({"total_length": 0}, "total_length must be a positive int"),
        ({"total_length": 8, "pad_to_multiple_of": 8}, "give one of them"),
        ({"total_length": 9, "align_to": 2}, "total_length=9 must be a multiple of align_to=2"),
        ({"pad_to_multiple_of": 9, "align_to": 2}, "pad_to_multiple_of=9 must be a multiple of align_to=2"),
        ({"total_length": 3}, "total_length=3 is below the 4 tokens that the rows take"),
        ({"total_length": 4, "align_to": 2}, "total_length=4 is below the 6 tokens that the rows take"),
    ],
)
def test_refuses(options, words):
    """The collator, and the function."""
    collator = quadrat.DataCollatorWithFlattening(**options)
    for _ in range(2):
        with pytest.raises(ValueError, match=words):
            collator(ROWS)
    with pytest.raises((ValueError, TypeError), match=words):
        quadrat.flatten([row["input_ids"] for row in ROWS], **options)


def test_a_known_batch_that_is_too_long():
    collator = quadrat.DataCollatorWithFlattening(total_length=6)
    assert collator(ROWS)["input_ids"].tolist() == [[1, 2, 3, 4, 0, 0]]
    with pytest.raises(ValueError, match="total_length=6 is below the 8 tokens"):
        collator([*ROWS, *ROWS])
    assert collator(ROWS)["input_ids"].shape == (1, 6)


def test_masking_does_not_go_with_places():
    collator = quadrat.DataCollatorForLanguageModeling(
        make_masking_tokenizer(), padding_free=quadrat.Flattening(align_to=4)
    )
    with pytest.raises(ValueError, match="align_to cannot be used with mlm"):
        collator(ROWS)
