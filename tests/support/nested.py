"""Nested batches of tensors and arrays, mostly of one structure, at times not."""

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from hypothesis import strategies as st
from transformers import BatchEncoding

TORCH_DTYPES = [torch.float32, torch.int64, torch.bfloat16, torch.float16, torch.bool, torch.uint8, torch.complex64]
NUMPY_DTYPES = ["float32", "int64", "float64", "int32", "bool", "uint8", "complex64", ">i4", "U3"]


class Leaf(NamedTuple):
    """What the arrays at one place of a structure have in common."""

    torch: bool
    dtype: Any
    trailing: tuple[int, ...] | None  # after the width; None: one dimension


class Pair(NamedTuple):
    """A tuple that is not made of an iterable."""

    first: Any
    second: Any


class Names(OrderedDict):  # type: ignore[type-arg]
    """A mapping of another type, made as a dict is."""


def leaves(library: str) -> st.SearchStrategy[Leaf]:
    dtypes = st.sampled_from(TORCH_DTYPES if library == "pt" else NUMPY_DTYPES)
    trailing = st.sampled_from([(), (), (3,), (2, 2), None])
    return st.builds(Leaf, st.just(library == "pt"), dtypes, trailing)


def structures(leaf: st.SearchStrategy[Leaf]) -> st.SearchStrategy[Any]:
    names = st.sampled_from(["a", "b", "logits"])

    def around(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        some = st.lists(inner, min_size=1, max_size=3)
        named = st.dictionaries(names, inner, min_size=1, max_size=2)
        return st.one_of(
            some, some.map(tuple), named, named.map(OrderedDict), named.map(Names), named.map(BatchEncoding),
            st.builds(Pair, inner, inner),
        )  # fmt: skip

    return st.one_of(leaf, leaf, st.recursive(leaf, around, max_leaves=4))


def numbers(leaf: Leaf, shape: tuple[int, ...], seed: int) -> Any:
    """An array of the leaf's kind, `shape` before what it has in common; strided differently from time to time."""
    drawn = np.random.default_rng(seed).integers(-5 if "uint" not in str(leaf.dtype) else 0, 100, shape)
    if not leaf.torch:
        array = drawn.astype(leaf.dtype)
        return np.asfortranarray(array) if seed % 5 == 0 else array
    tensor = torch.from_numpy(drawn).to(leaf.dtype)
    return tensor.flip(0).flip(0).transpose(0, -1).contiguous().transpose(0, -1) if seed % 5 == 0 else tensor


@st.composite
def filled(draw: st.DrawFn, structure: Any, rows: int | None = None) -> Any:
    """A batch of the structure. Its arrays have `rows` rows, and widths of their own."""
    count = draw(st.integers(0, 3)) if rows is None else rows

    def fill(node: Any) -> Any:
        if isinstance(node, Leaf):
            if draw(st.integers(0, 30)) == 0:
                node = node._replace(dtype=draw(st.sampled_from(TORCH_DTYPES if node.torch else NUMPY_DTYPES)))
            if draw(st.integers(0, 40)) == 0:
                node = node._replace(trailing=draw(st.sampled_from([None, (), (1,), (3,)])))
            if draw(st.integers(0, 40)) == 0:
                return draw(st.sampled_from([None, 3, np.float32(1), torch.tensor(2.0), np.array(3)]))
            shape = (count,) if node.trailing is None else (count, draw(st.integers(0, 4)), *node.trailing)
            return numbers(node, shape, draw(st.integers(0, 1000)))
        if isinstance(node, Mapping):
            parts = {name: fill(part) for name, part in node.items()}
            odd = draw(st.integers(0, 40))
            if odd == 0:
                parts["more"] = torch.zeros(2)
            elif odd == 1:
                parts.popitem()
            return type(node)(parts)
        parts = [fill(part) for part in node]
        if isinstance(node, Pair):
            return Pair(*parts)
        odd = draw(st.integers(0, 40))
        if odd == 0:
            parts.append(torch.zeros(2))
        elif odd == 1:
            parts.pop()
        return type(node)(parts)

    return fill(structure)


def overwritten(batch: Any) -> None:
    """Change every number of a batch in place, as a model that writes to the same memory again does."""
    if isinstance(batch, (list, tuple, Mapping)):
        for part in batch.values() if isinstance(batch, Mapping) else batch:
            overwritten(part)
    elif isinstance(batch, torch.Tensor):
        batch.zero_()
    elif isinstance(batch, np.ndarray):
        batch[...] = np.zeros((), batch.dtype)
