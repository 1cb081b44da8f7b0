"""The collators and `pad` of quadrat.trl == those of the installed TRL."""

import importlib
import warnings
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

import quadrat
from support.compare import assert_identical, assert_same_batch, assert_same_outcome, check_error, outcome
from support.strategies import row_columns

pytest.importorskip("trl", reason="TRL, whose collators are replaced, is not installed")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import quadrat.trl as ours

MULTIPLES = st.sampled_from([None] * 3 + [1, 4, 8, 0, True, 2.0, -1])
PAD_IDS = st.sampled_from([0, 0, 7, -3, 2**40, 2**70, None, 1.5, True])
LENGTHS = st.lists(st.integers(0, 6) | st.integers(1, 12), min_size=1, max_size=5)
FORMS = st.sampled_from(["list"] * 8 + ["tuple", "array", "tensor"])
ELEMENTS = st.sampled_from(["int"] * 8 + ["small", "bool", "float"])
COLLATORS = {
    "sft": ours.sft.DataCollatorForLanguageModeling,
    "dpo": ours.dpo.DataCollatorForPreference,
    "reward": ours.reward.DataCollatorForPreference,
    **({} if ours.kto is None else {"kto": ours.kto.DataCollatorForUnpairedPreference}),
    **({} if ours.tpo is None else {"tpo": ours.tpo.DataCollatorForTriplePreference}),
}
COLUMNS = {
    "dpo": ("prompt_ids", "chosen_ids", "rejected_ids"),
    "reward": ("chosen_ids", "rejected_ids"),
    "kto": ("prompt_ids", "completion_ids", "KL_completion_ids"),
    "tpo": ("prompt_ids", "chosen_ids", "rejected_ids", "reference_ids"),
}
NUMBERS = {
    "dpo": ("ref_chosen_logps", "ref_rejected_logps"),
    "reward": ("margin",),
    "kto": ("ref_logps", "ref_KL_logps", "label"),
    "tpo": (),
}
needs_newest = pytest.mark.skipif(
    "return_position_ids" not in ours.sft.Original.__dataclass_fields__, reason="this TRL's options are others"
)

needs_bounds = pytest.mark.skipif(ours.sft.outputs() is not None, reason="this TRL's flat batches have no bounds")


def both(name: str, **options: Any) -> tuple[Any, Any]:
    """(TRL's collator, quadrat's), with the options that the installed class has."""
    original = COLLATORS[name].__mro__[0].__module__
    reference = getattr(ours, original.rpartition(".")[2]).Original
    known = {key: value for key, value in options.items() if key in reference.__dataclass_fields__}
    return reference(**known), COLLATORS[name](**known)


def assert_equal(expected: Any, got: Any) -> None:
    """The same outcome, and the same tensors are one object."""
    assert_same_outcome(expected, got)
    if expected[0] == "returned" and "cu_seq_lens_q" in got[1]:
        assert got[1]["cu_seq_lens_q"] is got[1]["cu_seq_lens_k"]


@st.composite
def sft_rows(draw: Any) -> list[dict[str, Any]]:
    lengths, form, element = draw(LENGTHS), draw(FORMS), draw(ELEMENTS)
    columns = {"input_ids": draw(row_columns(lengths, form, element))}
    if draw(st.booleans()):
        other = lengths if draw(st.integers(0, 9)) else draw(st.permutations(lengths))
        columns["labels"] = draw(row_columns(other, form, "int"))
    if draw(st.integers(0, 2)) == 0:
        columns["seq_lengths"] = [_parts(draw, length) for length in lengths]
    if draw(st.integers(0, 4)) == 0:
        columns["text"] = ["words"] * len(lengths)
    rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    if draw(st.integers(0, 19)) == 0:
        rows[-1].pop(draw(st.sampled_from(list(columns))))
    return rows


def _parts(draw: Any, length: int) -> list[int]:
    cuts = sorted(draw(st.lists(st.integers(0, length), max_size=3)))
    odd = draw(st.integers(0, 9)) == 0
    sizes = np.diff([0, *cuts, length + odd]).tolist()
    return sizes if odd or draw(st.integers(0, 3)) == 0 else [size for size in sizes if size]


# torch takes no arrays that step backwards, and says so after batches of others too.
@example([[{"input_ids": np.arange(5, 9)[::step]}] * 2 for step in (1, 1, -1)], False, False, None, 0)
@given(st.lists(sft_rows(), min_size=1, max_size=4), st.booleans(), st.booleans(), MULTIPLES, PAD_IDS)
def test_sft(batches, padding_free, return_position_ids, multiple, pad_id):
    """Batch after batch, of kinds that are known and others."""
    options = {"padding_free": padding_free, "return_position_ids": return_position_ids}
    collators = both("sft", pad_token_id=pad_id, pad_to_multiple_of=multiple, **options)
    for rows in [*batches, *batches]:
        assert_identical(*collators, rows, same=assert_equal)


OPTIONS = st.fixed_dictionaries(
    {
        "pad_token_id": PAD_IDS,
        "pad_to_multiple_of": MULTIPLES,
        "max_length": st.sampled_from([None, None, 1, 3, 7, 0, -2, 2.0]),
        "truncation_mode": st.sampled_from(["keep_start", "keep_end", "keep_end", "keep_nothing"]),
        "include_reference": st.booleans(),
    }
)


@st.composite
def preference_rows(draw: Any, name: str) -> list[dict[str, Any]]:
    count, form, element = draw(st.integers(1, 4)), draw(FORMS), draw(ELEMENTS)
    columns: dict[str, list[Any]] = {}
    for column in COLUMNS[name]:
        if column != "KL_completion_ids" or draw(st.booleans()):
            lengths = draw(st.lists(st.integers(0, 6), min_size=count, max_size=count))
            columns[column] = draw(row_columns(lengths, form, element))
    for column in NUMBERS[name]:
        if column == "label" or draw(st.booleans()):
            number = st.booleans() if column == "label" else st.floats(-9, 9) | st.integers(-9, 9)
            columns[column] = draw(st.lists(number, min_size=count, max_size=count))
    rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    if draw(st.integers(0, 19)) == 0:
        rows[-1].pop(draw(st.sampled_from(list(columns))))
    return rows


@pytest.mark.parametrize("name", [name for name in COLUMNS if name in COLLATORS])
@given(st.data(), OPTIONS, st.sampled_from(["nothing", "pad_token_id", "pad_to_multiple_of", "max_length"]))
def test_preferences(name, data, options, change):
    """Batch after batch, of kinds that are known and others, and with an option that changes."""
    collators = both(name, **options)
    batches = data.draw(st.lists(preference_rows(name), min_size=1, max_size=4))
    for rows in [*batches, *batches]:
        assert_identical(*collators, rows)
    for collator in collators:
        if hasattr(collator, change):
            setattr(collator, change, 5)
    for rows in batches:
        assert_identical(*collators, rows)


@st.composite
def tensors(draw: Any) -> list[torch.Tensor]:
    dtype = draw(st.sampled_from([torch.int64, torch.int64, torch.int32, torch.float32, torch.bool, torch.float16]))
    trailing = draw(st.sampled_from([(), (), (3,), (2, 2), (0,)]))
    rows = []
    for length in draw(st.lists(st.integers(0, 6), min_size=1, max_size=4)):
        alike = draw(st.integers(0, 9)) > 0
        rest = trailing if alike else [draw(st.integers(0, 4)) for _ in trailing]
        tensor = torch.randint(-9, 9, (length, *rest)).to(dtype if draw(st.integers(0, 19)) else torch.float64)
        if draw(st.integers(0, 19)) == 0:
            tensor = tensor.repeat_interleave(2, 0)[::2]
        rows.append(tensor.requires_grad_() if tensor.is_floating_point() and draw(st.integers(0, 19)) == 0 else tensor)
    return rows


VALUES = st.sampled_from([0, 0, 1, -100, 2**40, 2**70, 1.5, float("-inf"), 1e300, True, None])


@example([torch.tensor([1, 2]), torch.zeros(0, dtype=torch.float64)], 0, "right", None)  # keep the first one's dtype
@example([torch.zeros(0, dtype=torch.float64), torch.tensor([1, 2])], 0, "right", None)
@given(tensors(), VALUES, st.sampled_from(["right", "left", "middle"]), MULTIPLES)
def test_pad(rows, value, side, multiple):
    options = {"padding_value": value, "padding_side": side, "pad_to_multiple_of": multiple}
    expected = outcome(lambda values: ours.padding.Original(values, **options), rows)
    got = outcome(lambda values: ours.pad(values, **options), rows)
    assert_same_outcome(expected, got)
    if expected[0] == "returned":
        assert got[1].requires_grad == expected[1].requires_grad


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([], "tensors is a list; give a list of tensors, at least one"),
        ([torch.tensor(1)], "tensors[0] has shape (), "),
        ([torch.ones(2), torch.ones(2, 2)], "tensors[1] has shape (2, 2), tensors[0] (2,); give all one number of dim"),
        ([torch.ones(2), [1, 2]], "tensors[1] is a list, not a tensor; give torch.tensor(row)"),
        (None, "tensors is None"),
    ],
)
def test_pad_of_what_cannot_be_padded(rows, said):
    assert said in check_error(outcome(ours.padding.Original, rows)[1], outcome(ours.pad, rows), [])


def test_rows_that_fall_back_name_trl(caplog):
    _, collator = both("sft", pad_token_id=0)
    quadrat.stats(reset=True)
    with caplog.at_level("WARNING", logger="quadrat"):
        collator([{"input_ids": [1, 2]}, {"input_ids": [0.5]}])
    (message,) = caplog.messages
    assert message.startswith("DataCollatorForLanguageModeling: fell back to TRL: column 'input_ids' is not made of")
    assert message in quadrat.stats(reset=True).causes


def rows_of(name: str, count: int = 5) -> list[dict[str, Any]]:
    random = np.random.default_rng(0)

    def ids() -> list[int]:
        return random.integers(1, 99, random.integers(1, 9)).tolist()

    if name == "sft":
        rows = [{"input_ids": ids()} for _ in range(count)]
        return [{**row, "labels": [-100, *row["input_ids"][1:]]} for row in rows]
    rows = [{column: ids() for column in COLUMNS[name]} for _ in range(count)]
    return [{**row, **{column: float(i) for column in NUMBERS[name]}} for i, row in enumerate(rows)]


@pytest.mark.parametrize("padding_free", [False, True])
@pytest.mark.parametrize("name", COLLATORS)
def test_from_arrow_and_columns(name, padding_free):
    rows = rows_of(name)
    reference, collator = both(name, pad_token_id=0, padding_free=padding_free)
    expected = reference(rows)
    columns = {column: [row[column] for row in rows] for column in rows[0]}
    for given_ in (pa.Table.from_pylist(rows), columns, tuple(rows)):
        for _ in range(2):
            assert_same_batch(expected, collator(given_))


@pytest.mark.parametrize("padding_free", [False, True])
@pytest.mark.parametrize("name", COLLATORS)
def test_no_row_is_left_to_trl(name, padding_free, caplog):
    """Usual batches are not only the same: the kernels make them."""
    _, collator = both(name, pad_token_id=0, padding_free=padding_free, max_length=None)
    with caplog.at_level("DEBUG", logger="quadrat"):
        for count in (5, 5, 3):
            collator(rows_of(name, count))
        if name == "sft":
            collator([{**row, "seq_lengths": [len(row["input_ids"])]} for row in rows_of(name)])
    assert not caplog.records


@pytest.mark.parametrize("name", COLLATORS)
def test_deferred(name):
    for padding_free in (False, True):
        reference, collator = both(name, pad_token_id=0, padding_free=padding_free)
        collator.deferred = True
        for _ in range(2):
            batch = collator(rows_of(name))
            assert isinstance(batch, quadrat.deferred.DeferredBatch)
            assert_same_batch(reference(rows_of(name)), dict(batch.to("cpu")))


@needs_newest
def test_packed_dataset():
    """Packs of quadrat's are rows with `seq_lengths`."""
    dataset = quadrat.PackedDataset([{"input_ids": row["input_ids"]} for row in rows_of("sft", 20)], max_length=16)
    packs = [dataset[i] for i in range(3)]
    plain = [{name: pack[name].tolist() for name in pack} for pack in packs]
    for padding_free in (False, True):
        reference, collator = both("sft", pad_token_id=0, padding_free=padding_free, return_position_ids=True)
        assert_same_batch(reference(plain), collator(packs))


@needs_bounds
@pytest.mark.parametrize("packed", [False, True])
def test_padding_is_one_sequence(packed):
    rows = [{"input_ids": [5, 6, 7]}, {"input_ids": [8, 9]}]
    if packed:
        rows = [{"input_ids": [5, 6, 7, 8, 9], "seq_lengths": [3, 2]}]
    options = {"pad_token_id": 0, "padding_free": True, "pad_to_multiple_of": 8}
    collator = ours.sft.DataCollatorForLanguageModeling(**options, padding_is_one_sequence=True)
    for _ in range(2):
        batch = collator(rows)
        assert {name: getattr(value, "tolist", lambda value=value: value)() for name, value in batch.items()} == {
            "input_ids": [[5, 6, 7, 8, 9, 0, 0, 0]],
            "labels": [[-100, 6, 7, -100, 9, -100, -100, -100]],
            "position_ids": [[0, 1, 2, 0, 1, 0, 1, 2]],
            "cu_seq_lens_q": [0, 3, 5, 8],
            "cu_seq_lens_k": [0, 3, 5, 8],
            "max_length_q": 3,
            "max_length_k": 3,
            "seq_idx": [[0, 0, 0, 1, 1, 2, 2, 2]],
        }


@needs_newest
def test_labels_in_a_later_row_only():
    rows = [{"input_ids": [1, 2]}, {"input_ids": [3], "labels": [4]}]
    for padding_free in (False, True):
        reference, collator = both("sft", pad_token_id=0, padding_free=padding_free)
        collator([{"input_ids": [1, 2]}, {"input_ids": [3]}])
        assert_same_batch(reference(rows), collator(rows))


def test_errors_are_those_of_trl():
    reference, collator = both("sft", pad_token_id=0)
    expected, got = (outcome(call, [{"text": "words"}]) for call in (reference, collator))
    message = "column 'input_ids' is missing in row 0, which has ['text']; let the trainer prepare the dat"
    assert check_error(expected[1], got, []).startswith(message)


@needs_bounds
def test_boundaries_are_one_tensor_in_a_worker():
    rows = [{"input_ids": [1, 2]}, {"input_ids": [3]}]
    for collator in both("sft", pad_token_id=0, padding_free=True):
        (batch,) = torch.utils.data.DataLoader(rows, batch_size=2, collate_fn=collator, num_workers=1)
        assert batch["cu_seq_lens_q"] is batch["cu_seq_lens_k"]


@pytest.mark.skipif(ours.kto is None, reason="this TRL has no such class")
def test_labels_that_are_a_list_are_left_to_trl(monkeypatch):
    original = ours.kto.Original.torch_call
    changed = lambda self, examples: {**original(self, examples), "label": [True]}  # noqa: E731
    monkeypatch.setattr(ours.kto.Original, "torch_call", changed)
    with pytest.raises(ImportError, match="are a list"):
        importlib.reload(ours.kto)
