"""Images among text: patches of a vision-language model joined, from arrays and from a datasets.Dataset."""

import functools
from typing import Any

import datasets
import numpy as np
import pytest
import torch

import quadrat
from benchmarks.jobs import Call, Job, same, timed
from benchmarks.workload import tokenizer
from quadrat.data.arrow import original_getitems as fetched_by_datasets

pytestmark = pytest.mark.usefixtures("patched_datasets")
PATCH = 1176
HALF = {"pixel_values": "bfloat16"}


@functools.cache
def rows() -> list[dict[str, Any]]:
    """8 rows of 256 to 1,024 patches, and a quarter as many tokens."""
    random = np.random.default_rng(0)
    sizes = random.integers(128, 513, 8) * 2
    return [
        {
            "input_ids": random.integers(5, 100, size // 4).tolist(),
            "pixel_values": random.standard_normal((size, PATCH), np.float32),
            "image_grid_thw": np.array([[1, 2, size // 2]]),
        }
        for size in sizes
    ]


@functools.cache
def stored() -> datasets.Dataset:
    inner = datasets.List(datasets.List(datasets.Value("float32"), length=PATCH))
    grid = datasets.List(datasets.List(datasets.Value("int64"), length=3))
    types = {"input_ids": datasets.List(datasets.Value("int64")), "pixel_values": inner, "image_grid_thw": grid}
    return datasets.Dataset.from_list(rows(), features=datasets.Features(types))


def by_hand(features: Any, dtype: torch.dtype) -> dict[str, Any]:
    ids = [torch.as_tensor(feature["input_ids"]) for feature in features]
    grids = torch.cat([torch.as_tensor(feature["image_grid_thw"]) for feature in features])
    pixels = torch.cat([torch.as_tensor(feature["pixel_values"], dtype=torch.float32) for feature in features])
    padded = torch.nn.utils.rnn.pad_sequence(ids, batch_first=True)
    mask = torch.nn.utils.rnn.pad_sequence([torch.ones_like(row) for row in ids], batch_first=True)
    return {"input_ids": padded, "pixel_values": pixels.to(dtype), "image_grid_thw": grids, "attention_mask": mask}


def joined(half: bool, *, arrow: bool = False) -> Job:
    """The collator, one written by hand, and one copy of the bytes."""
    options = {"dtypes": HALF} if half else {}
    collator = quadrat.DataCollatorWithPadding(tokenizer(), join_columns=("pixel_values", "image_grid_thw"), **options)
    dtype = torch.bfloat16 if half else torch.float32
    places, data = list(range(len(rows()))), stored() if arrow else None
    fetch = (lambda: fetched_by_datasets(data, places)) if arrow else rows
    ours = (lambda: collator(data.__getitems__(places))) if arrow else (lambda: collator(rows()))
    source = torch.from_numpy(np.concatenate([row["pixel_values"] for row in rows()]))
    room = torch.empty_like(source)
    ways: dict[str, Call] = {"by hand": lambda: by_hand(fetch(), dtype), "quadrat": lambda: dict(ours())}
    check = lambda: same(ways["by hand"](), ways["quadrat"](), containers=False)  # noqa: E731
    return Job(ways | {"one copy": lambda: room.copy_(source)}, {"patches": len(source), "half": half}, check=check)


CASES = {
    f"{source}, {dtype}": functools.partial(joined, half, arrow=arrow)
    for source, arrow in (("arrays", False), ("a Dataset", True))
    for dtype, half in (("float32", False), ("bfloat16", True))
}
test_images = timed(CASES, ("by hand", "quadrat", "one copy"))
