"""`packs=` of the padding collators against oracles of one line: rows of documents, their positions and their masks."""

import itertools
from typing import Any

import datasets
import hypothesis.strategies as st
import numpy as np
import pytest
import torch
import transformers
from hypothesis import given

import quadrat
from support import samples

pytestmark = pytest.mark.same_everywhere

COLLATORS = ["DataCollatorWithPadding", "DataCollatorForTokenClassification", "DataCollatorForSeq2Seq"]
COLLATORS += ["DataCollatorForLanguageModeling"]
READ = {
    "list": lambda row: row,
    "array": lambda row: {name: np.array(value, np.int64) for name, value in row.items()},
    "tensor": lambda row: {name: torch.tensor(value) for name, value in row.items()},
}
PACKS = st.lists(st.lists(st.integers(1, 5), min_size=1, max_size=4), min_size=1, max_size=4)
FORMS = [*READ, "in Arrow", "joined", "joined, in Arrow"]
DTYPES = [None, torch.bool, torch.float32, torch.float64, torch.float16, torch.bfloat16]


def given_as(packs: Any, form: str) -> Any:
    if form == "in Arrow":
        rows = list(itertools.chain.from_iterable(packs))
        with quadrat.data.patch_datasets():
            read = iter(datasets.Dataset.from_list(rows).__getitems__(list(range(len(rows)))))
        return [[next(read) for _ in pack] for pack in packs]
    if form in READ:
        return [tuple(map(READ[form], pack)) for pack in packs]
    return joined(packs) if form == "joined" else datasets.Dataset.from_list(joined(packs)).with_format("arrow")[:]


def joined(packs: Any) -> list[dict[str, Any]]:
    made = []
    for pack in packs:
        row = {name: list(itertools.chain.from_iterable(one[name] for one in pack)) for name in pack[0]}
        made.append({**row, "seq_lengths": [len(one["input_ids"]) for one in pack]})
    return made


def padded(rows: list[list[Any]], width: int, value: Any, *, left: bool) -> torch.Tensor:
    gaps = [[value] * (width - len(row)) for row in rows]
    return torch.tensor([[*gap, *row] if left else [*row, *gap] for row, gap in zip(rows, gaps, strict=True)])


def counted(rows: list[list[int]], width: int, *, left: bool) -> torch.Tensor:
    gaps = [range(width - len(row)) if left else range(row[-1] + 1, row[-1] + 1 + width - len(row)) for row in rows]
    return torch.tensor([[*gap, *row] if left else [*row, *gap] for row, gap in zip(rows, gaps, strict=True)])


def blocks(numbers: torch.Tensor, way: str, dtype: torch.dtype | None) -> torch.Tensor:
    seen = (numbers[:, None, :, None] == numbers[:, None, None]) & (numbers[:, None, None] != 0)
    seen = seen.tril() if way == "causal" else seen
    dtype = torch.get_default_dtype() if dtype is None else dtype
    if dtype == torch.bool:
        return seen
    return torch.where(seen, torch.zeros((), dtype=dtype), torch.tensor(torch.finfo(dtype).min, dtype=dtype))


@given(name=st.sampled_from(COLLATORS), form=st.sampled_from(FORMS), data=st.data())
def test_padded(name, form, data):
    draw = data.draw
    sizes, way = draw(PACKS), draw(st.sampled_from(["positions", "numbers", "causal", "bidirectional"]))
    left, multiple, framework = draw(st.booleans()), draw(st.none() | st.just(8)), draw(st.sampled_from(["pt", "np"]))
    dtype = draw(st.sampled_from(DTYPES)) if way in ("causal", "bidirectional") and framework == "pt" else None
    masks, positions, labels = draw(st.booleans()), draw(st.booleans()), name in COLLATORS[1:3]
    first = 0 if left else draw(st.integers(0, 9))
    packs = [
        [
            {
                "input_ids": draw(st.lists(st.integers(5, 9), min_size=n, max_size=n)),
                **({"attention_mask": [1] * n} if masks else {}),
                **({"labels": [n] * n} if labels else {}),
                **({"position_ids": list(range(first, first + n))} if positions else {}),
            }
            for n in pack
        ]
        for pack in sizes
    ]
    dtypes = None if dtype is None else {"attention_mask": dtype}
    options = {"mlm": False} if name == COLLATORS[3] else {}
    collator = samples.make(
        quadrat, name, packs=way, dtypes=dtypes, pad_to_multiple_of=multiple, return_tensors=framework, **options
    )
    collator.tokenizer.padding_side = "left" if left else "right"
    features = given_as(packs, form)
    rows = joined(packs)
    longest = max(len(row["input_ids"]) for row in rows)
    width = longest if multiple is None else -(-longest // multiple) * multiple
    starts = first if positions else 0
    ids = padded([row["input_ids"] for row in rows], width, collator.tokenizer.pad_token_id, left=left)
    numbers = padded([[i for i, n in enumerate(pack, 1) for _ in range(n)] for pack in sizes], width, 0, left=left)
    where = counted([[i for n in pack for i in range(starts, starts + n)] for pack in sizes], width, left=left)
    expected = {"input_ids": ids, "position_ids": where}
    if way != "positions":
        expected["attention_mask"] = numbers if way == "numbers" else blocks(numbers, way, dtype)
        if framework == "np" and way != "numbers":
            expected["attention_mask"] = blocks(numbers, way, torch.float64)
    if labels:
        expected["labels"] = padded([row["labels"] for row in rows], width, collator.label_pad_token_id, left=left)
    if name == COLLATORS[3]:
        inside = [[i > 0 for n in pack for i in range(n)] for pack in sizes]
        expected["labels"] = torch.where(padded(inside, width, False, left=left), ids, -100)
    for _ in range(2):
        batch = {key: torch.as_tensor(value) for key, value in collator(features).items()}
        assert batch.keys() == expected.keys()
        for key, value in expected.items():
            assert batch[key].dtype == value.dtype, key
            assert torch.equal(batch[key], value), key
    assert not collator.__dict__.get("_quadrat_fell_back")


SIZES = {"vocab_size": 32, "hidden_size": 32, "intermediate_size": 32}
LAYERS = {"num_hidden_layers": 2, "num_attention_heads": 4}


def bert(attention: str) -> Any:
    if not hasattr(transformers.masking_utils, "create_bidirectional_mask"):
        pytest.skip("in transformers 4, BERT takes no masks of four dimensions")
    return transformers.BertModel(transformers.BertConfig(**SIZES, **LAYERS, attn_implementation=attention))


def llama(attention: str) -> Any:
    config = transformers.LlamaConfig(**SIZES, **LAYERS, attn_implementation=attention, use_cache=False)
    return transformers.LlamaForCausalLM(config)


MODELS = [(llama, "positions"), (llama, "causal"), (bert, "bidirectional")]


@pytest.mark.parametrize(("model_of", "way"), MODELS)
@pytest.mark.parametrize(("attention", "dtype"), [("eager", "float32"), ("sdpa", "float32"), ("sdpa", "bool")])
def test_a_model_keeps_documents_apart(model_of, way, attention, dtype):
    """What it makes of each document is what it makes of the row alone."""
    torch.manual_seed(0)
    model = model_of(attention).eval()
    packs = [[{"input_ids": [5 + n] * n} for n in sizes] for sizes in ([3, 1, 6], [2], [4, 4])]
    dtypes = None if way == "positions" else {"attention_mask": dtype}
    batch = samples.make(quadrat, "DataCollatorWithPadding", packs=way, dtypes=dtypes)(packs)
    with torch.no_grad():
        for row, pack in zip(model(**batch)[0], packs, strict=True):
            sizes = [len(one["input_ids"]) for one in pack]
            for one, part in zip(pack, row[: sum(sizes)].split(sizes), strict=True):
                alone = model(torch.tensor([one["input_ids"]]))[0][0]
                torch.testing.assert_close(part, alone, rtol=1e-5, atol=1e-5)


def test_rows_that_somebody_else_packed():
    """Their numbers of documents, positions where there are none, and masks of rows that lack both."""
    rows = [{"input_ids": [5, 6, 7, 8], "attention_mask": [1, 1, 2, 0]}, {"input_ids": [5], "attention_mask": [3]}]
    options: dict[str, Any] = {"pad_to_multiple_of": None, "packs": "numbers"}
    batch = samples.make(quadrat, "DataCollatorWithPadding", **options)(rows)
    assert batch["attention_mask"].tolist() == [[1, 1, 2, 0], [3, 0, 0, 0]]
    assert batch["position_ids"].tolist() == [[0, 1, 0, 1], [0, 1, 2, 3]]
    seen = blocks(batch["attention_mask"], "causal", torch.bool)
    batch = samples.make(quadrat, "DataCollatorWithPadding", **options)([{"input_ids": [5, 6]}, {"input_ids": [5]}])
    assert batch["attention_mask"].tolist() == [[1, 1], [1, 0]]
    options.update(packs="causal", dtypes={"attention_mask": "bool"})
    assert torch.equal(samples.make(quadrat, "DataCollatorWithPadding", **options)(rows)["attention_mask"], seen)


def test_a_packed_dataset_and_masked_tokens():
    """Packs of `PackedDataset`; tokens that their rows' own mask leaves out are in no document."""
    rows = [{"input_ids": [5] * n, "attention_mask": [1] * (n - 1) + [0]} for n in (3, 2, 4)]
    packs = quadrat.PackedDataset(rows, 5, shuffle=False)
    batch = samples.make(quadrat, "DataCollatorForTokenClassification", packs="numbers", return_tensors="np")(
        list(packs)
    )
    assert batch["attention_mask"].tolist() == [[1, 1, 1, 0, 0], [1, 1, 0, 2, 0]]
    assert batch["position_ids"].tolist() == [[0, 1, 2, 3, 4], [0, 1, 2, 0, 1]]


ONE = [[{"input_ids": [5]}]]
MASK = {"attention_mask": "bool"}
NUMBERS = {"packs": "numbers"}
WRONG: list[tuple[dict[str, Any], Any, str]] = [
    ({"packs": "4d"}, ONE, "packs must be one of 'positions', 'numbers'"),
    ({"packs": "numbers", "trim": True}, ONE, "trim=True"),
    ({"packs": "numbers", "dtypes": MASK}, ONE, "padded by the tokenizer"),
    ({"packs": "causal", "dtypes": {"attention_mask": "int8"}}, ONE, "must be bool or floats"),
    ({"packs": "causal", "dtypes": {"position_ids": "int8"}}, ONE, "'position_ids'"),
    (NUMBERS, [*ONE, {"input_ids": [5]}], "feature 1 is a dict among lists of rows"),
    (NUMBERS, [[{"input_ids": [5], "x": [5, 6]}]], "row 0 has 1 tokens in 'input_ids' and 2 in 'x'"),
    (NUMBERS, [[{"input_ids": [5], "x": "text"}]], "column 'x' does not hold rows of numbers: remove"),
    (NUMBERS, [[{"input_ids": [5], "x": [5]}], [{"input_ids": [5]}]], r"each with the columns .*'x'.*: row 1 is not"),
    (NUMBERS, [{"input_ids": [5, 6], "seq_lengths": [2.0]}], "'seq_lengths' does not say how long documents are"),
    (NUMBERS, [{"input_ids": [5, 6], "seq_lengths": [3]}], r"row 0: seq_lengths \[3\] do not sum to its 2"),
    (NUMBERS, [{"input_ids": [5, 6], "position_ids": [0]}], "'position_ids' has other rows than one number"),
]


@pytest.mark.parametrize(("options", "features", "said"), WRONG)
def test_errors(options, features, said):
    with pytest.raises((ValueError, TypeError), match=said):
        samples.make(quadrat, "DataCollatorWithPadding", **options)(features)


@pytest.mark.parametrize(("name", "options"), [(COLLATORS[0], {}), (COLLATORS[3], {"mlm": False})])
def test_positions_of_several_axes_stay(name, options):
    """Those of M-RoPE, which `pad_axes` pads; and documents without tokens have a number, too."""
    places = [np.arange(3 * n).reshape(3, 1, n) for n in (4, 2)]
    rows = [
        {"input_ids": [5] * 4, "position_ids": places[0], "seq_lengths": [1, 0, 3]},
        {"input_ids": [5] * 2, "position_ids": places[1], "seq_lengths": [2]},
    ]
    padded = {"pad_values": {"position_ids": 0}, "pad_axes": {"position_ids": -1}, "pad_to_multiple_of": None}
    batch = samples.make(quadrat, name, packs="numbers", **padded, **options)(rows)
    assert batch["attention_mask"].tolist() == [[1, 3, 3, 3], [1, 1, 0, 0]]
    assert batch["position_ids"][:, 1].tolist() == [[0, 1, 0, 0], [2, 3, 0, 0], [4, 5, 0, 0]]


@given(
    counts=st.lists(st.lists(st.none() | st.integers(0, 3), min_size=1, max_size=3), min_size=1, max_size=3),
    form=st.sampled_from(["list", "array", "tensor"]),
)
def test_joined_columns_of_lists_of_rows(counts, form):
    """The images of all rows, in their order; rows may have none."""
    make = {"list": np.ndarray.tolist, "array": np.asarray, "tensor": torch.from_numpy}[form]
    number = itertools.count(1)
    packs: list[list[dict[str, Any]]] = [[{"input_ids": [5, 6]} for _ in pack] for pack in counts]
    images = []
    for pack, sizes in zip(packs, counts, strict=True):
        for row, size in zip(pack, sizes, strict=True):
            if size is not None:
                images.append(np.full((size, 2), next(number), np.float32))
                row["x"] = make(images[-1])
    collator = samples.make(quadrat, "DataCollatorWithPadding", packs="numbers", join_columns=("x",))
    batch = collator(packs)
    if not images or (form == "list" and not any(map(len, images))):
        assert "x" not in batch or batch["x"].numel() == 0
    else:
        assert torch.equal(batch["x"].float(), torch.from_numpy(np.concatenate(images)))
    assert batch["attention_mask"].max() == max(map(len, counts))


def test_shapes_of_joined_columns_that_disagree():
    packs = [[{"input_ids": [5], "x": np.ones((1, 2))}, {"input_ids": [6], "x": np.ones((2, 3))}]]
    collator = samples.make(quadrat, "DataCollatorWithPadding", packs="numbers", join_columns=("x",))
    with pytest.raises(ValueError, match=r"'x', row 1 has the shape \(2, 3\) and row 0 \(1, 2\)"):
        collator(packs)
