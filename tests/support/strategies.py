"""Random tokenizers, features and options, the odd ones included."""

import copyreg
from array import array
from collections import ChainMap, UserDict, deque
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import torch
from hypothesis import strategies as st
from tokenizers import Tokenizer, models
from transformers import BatchEncoding, BatchFeature, PreTrainedTokenizerFast

from support.mappings import Wrapped

VOCABULARY = {"[PAD]": 0, "[UNK]": 1, "[EOS]": 2, **{f"w{i}": i for i in range(3, 400)}}


class PadsInItsOwnWay(PreTrainedTokenizerFast):
    """A tokenizer that overrides `_pad`, as LED and LUKE do."""

    def _pad(self, *args: Any, **kwargs: Any) -> Any:
        padded = super()._pad(*args, **kwargs)
        padded["extra_mask"] = [7] * len(padded["input_ids"])
        return padded


class Tagged(np.ndarray):  # type: ignore[type-arg]
    """An array of a class that adds something, and changes nothing."""

    _of = "somewhere"

    def __new__(cls, row: Any) -> Any:
        return np.array(row, np.int64).view(cls)

    def describe(self) -> str:
        return f"{self.size} numbers"


class Marked(torch.Tensor):
    """A tensor of such a class."""

    def __deepcopy__(self, memo: Any) -> Any:
        with torch._C.DisableTorchFunctionSubclass():
            return self.clone().as_subclass(type(self))


class Doubling(np.ndarray):  # type: ignore[type-arg]
    """An array that answers in its own way."""

    def tolist(self) -> Any:
        return [2 * number for number in np.asarray(self).tolist()]


class Counting(Marked):
    """A tensor that answers in its own way."""

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = super().__torch_function__(function, types, args, kwargs)
        return [number + 1 for number in result] if function is torch.Tensor.tolist else result


def _tensor(row: Any) -> Any:
    return torch.tensor(row, dtype=torch.int64)


# What a row of ids can be.
ROW_FORMS: dict[str, Any] = {
    "list": list,
    "tuple": tuple,
    "array": lambda row: np.array(row, np.int64),
    "int32": lambda row: np.array(row, np.int64).astype(np.int32),
    "reversed": lambda row: np.array(row, np.int64)[::-1],
    "tensor": _tensor,
    "tensor32": lambda row: _tensor(row).int(),
    "numbers of numpy": lambda row: [np.int64(number) for number in row],
    "memmap": lambda row: np.array(row, np.int64).view(np.memmap),
    "array of a class": Tagged,
    "parameter": lambda row: torch.nn.Parameter(_tensor(row), requires_grad=False),
    "tensor of a class": lambda row: _tensor(row).as_subclass(Marked),
}
# Those that quadrat leaves to the reference.
OTHER_ROWS: dict[str, Any] = {
    "array of its own": lambda row: np.array(row, np.int64).view(Doubling),
    "masked": lambda row: np.ma.masked_equal(np.array(row, np.int64), 8),
    "tensor of its own": lambda row: _tensor(row).as_subclass(Counting),
    "array.array": lambda row: array("q", row),
    "memoryview": lambda row: memoryview(array("q", row)),
    "deque": deque,
    "Series": pd.Series,
    "Arrow's": pa.array,
    "range": lambda row: range(row[0], row[0] + len(row)) if row else range(0),
    "list of a class": type("Own", (list,), {}),
}
copyreg.pickle(memoryview, lambda view: (memoryview, (array(view.format, view),)))
copyreg.pickle(MappingProxyType, lambda proxy: (MappingProxyType, (dict(proxy),)))  # type: ignore[arg-type,return-value]
WRAPPERS: dict[str, Any] = {
    "dict": dict,
    "BatchEncoding": BatchEncoding,
    "BatchFeature": BatchFeature,
    "UserDict": UserDict,
    "proxy": MappingProxyType,
    "ChainMap": lambda row: ChainMap({name: row[name] for name in list(row)[1:2]}, dict(row)),
    "Mapping": Wrapped,
}


_INPUTS = ("input_ids", "token_type_ids", "attention_mask")


def word_level(
    vocabulary: dict[str, int],
    *,
    padding_side: str = "right",
    pad_token_type_id: int = 0,
    model_input_names: tuple[str, ...] = _INPUTS,
    cls: type[PreTrainedTokenizerFast] = PreTrainedTokenizerFast,
    **options: Any,
) -> Any:
    """A tokenizer of words, on any side, even one that there is not."""
    special = {"unk_token": "[UNK]", "eos_token": "[EOS]", "pad_token": "[PAD]"}
    words = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer: Any = cls(tokenizer_object=words, model_input_names=list(model_input_names), **{**special, **options})
    tokenizer.padding_side = padding_side
    tokenizer._pad_token_type_id = pad_token_type_id  # the keyword alone has no effect
    tokenizer.verbose = False
    tokenizer.deprecation_warnings["Asking-to-pad-a-fast-tokenizer"] = True  # 4.x says it once
    return tokenizer


def make_tokenizer(*, model_max_length: int = 12, **options: Any) -> Any:
    return word_level(VOCABULARY, model_max_length=model_max_length, **options)


def tokenizers() -> st.SearchStrategy[PreTrainedTokenizerFast]:
    return st.builds(
        make_tokenizer,
        padding_side=st.sampled_from(["right"] * 4 + ["left"] * 4 + ["middle"]),
        pad_token=st.sampled_from(["[PAD]"] * 5 + ["[EOS]"] * 2 + [None]),
        pad_token_type_id=st.sampled_from([0, 0, 3]),
        model_input_names=st.sampled_from(
            [_INPUTS, _INPUTS, ("input_ids", "attention_mask"), ("input_ids",), ("ids",)]
        ),
        model_max_length=st.sampled_from([12, int(1e30)]),
        cls=st.sampled_from([PreTrainedTokenizerFast] * 8 + [PadsInItsOwnWay]),
    )


# Options of collators that pad.
PADDING: dict[str, st.SearchStrategy[Any]] = {
    "padding": st.sampled_from([True] * 6 + ["longest", "max_length", False, "do_not_pad", "wrong"]),
    "max_length": st.sampled_from([None, None, None, 4, 9]),
    "pad_to_multiple_of": st.sampled_from([None] * 4 + [1, 4, 8, 4, 8, True, 0]),
}

_INTS = st.integers(0, 399) | st.sampled_from([-1, -5, -6, 255, 256, 257, 2**30 - 1, 2**30, 2**40, -(2**63), 2**63 - 1])
_ELEMENTS = {
    "int": _INTS,
    "small": st.integers(0, 1),
    "bool": st.booleans(),
    "float": st.floats(allow_nan=True, width=32),
}
_ARRAY_DTYPES = [
    *("int64", "int64", "int32", "int16", "int8", "uint8", "uint16", "uint64", "bool", "float32", "float64", "float16")
]


def _as_array(row: list[Any], dtype: str) -> np.ndarray[Any, Any]:
    with np.errstate(all="ignore"):
        return np.array(row, dtype=np.float64 if row and isinstance(row[0], float) else None).astype(dtype)


def _as_form(draw: Any, row: list[Any], form: str, dtype: str) -> Any:
    if form == "tuple":
        return tuple(row)
    if form == "list":
        return row
    array = _as_array(row, dtype)
    view = draw(st.sampled_from([*["whole"] * 5, "strided", "sliced", "reversed", "swapped"]))
    if view == "strided":
        array = np.repeat(array, 2)[::2]
    elif view == "sliced":
        array = np.concatenate([array[:1], array, array[:2]])[min(1, len(array)) : len(array) + min(1, len(array))]
    elif view == "reversed" and form == "array":
        array = array[::-1].copy()[::-1]
    if form == "array":
        return array.astype(array.dtype.newbyteorder()) if view == "swapped" and draw(st.booleans()) else array
    tensor = tensor_of(array.astype("int64") if dtype == "uint64" else array)
    return torch.tensor(tensor.tolist(), dtype=tensor.dtype) if tensor.dim() == 0 else tensor


def tensor_of(array: Any) -> Any:
    """A tensor of an array's numbers; before 2.3 torch has no unsigned ones but bytes."""
    try:
        return torch.from_numpy(array)
    except TypeError:
        return torch.from_numpy(array.astype("int64"))


@st.composite
def row_columns(draw: Any, lengths: list[int], form: str, element: str) -> list[Any]:
    """One row per length, in one form (or several), of one kind of number (or, rarely, of several)."""
    rows = [draw(st.lists(_ELEMENTS[element], min_size=n, max_size=n)) for n in lengths]
    dtype = draw(st.sampled_from(_ARRAY_DTYPES if element != "float" else ["float32", "float64", "float16"]))
    forms = [form] * len(rows)
    if draw(st.integers(0, 9)) == 0:
        forms = draw(
            st.lists(st.sampled_from(["list", "tuple", "array", "tensor"]), min_size=len(rows), max_size=len(rows))
        )
    return [_as_form(draw, row, kind, dtype) for row, kind in zip(rows, forms, strict=True)]


_NUMBERS = {"int": _INTS, "float": st.floats(width=32), "bool": st.booleans()}
_SCALAR_DTYPES = [*_ARRAY_DTYPES[2:], "int64", "uint32", "longlong", "longdouble"]


@st.composite
def typed_numbers(draw: Any, dtype: str, form: str) -> Any:
    """A NumPy number, or an array or tensor of no dimension, of one dtype."""
    of = np.dtype(dtype)
    if of.kind == "f":
        value = draw(st.floats(width=16) | st.sampled_from([0.1, 1 / 3, 1e30]))
    elif of.kind == "b":
        value = draw(st.booleans())
    else:
        least, most = np.iinfo(of).min, np.iinfo(of).max
        value = draw(st.integers(0, 9) | st.sampled_from([least, most, most // 2 + 1, least // 3]))
    with np.errstate(over="ignore"):
        number = of.type(value)
    if form == "scalar" or dtype == "longdouble":  # which torch does not have
        return number
    if form == "array":
        return np.array(number)
    tensor = tensor_of(np.array([number, number]))
    if draw(st.booleans()):
        return tensor[1]
    recorded = tensor.is_floating_point() and draw(st.integers(0, 5)) == 0
    return tensor[0].clone().requires_grad_(recorded)


@st.composite
def number_columns(draw: Any, count: int) -> list[Any]:
    if draw(st.booleans()):  # of one dtype, or of several
        several = draw(st.integers(0, 5)) == 0
        dtype = draw(st.sampled_from(_SCALAR_DTYPES))
        form = draw(st.sampled_from(["scalar", "scalar", "array", "tensor"]))
        dtypes = [draw(st.sampled_from(_SCALAR_DTYPES)) if several else dtype for _ in range(count)]
        return [draw(typed_numbers(kind, form)) for kind in dtypes]
    numbers = _NUMBERS[draw(st.sampled_from([*["int"] * 4, *["float"] * 2, *_NUMBERS]))]
    return [draw(numbers) for _ in range(count)]


def _odd_value(draw: Any, value: Any) -> Any:
    """The same value with something wrong in it."""
    kind = draw(st.sampled_from(["None", "str", "element", "float", "huge", "nested", "shorter"]))
    if kind in ("None", "str"):
        return None if kind == "None" else "text"
    if not isinstance(value, list) or not value:
        return value
    value = list(value)
    if kind == "shorter":
        return value[:-1]
    place = draw(st.integers(0, len(value) - 1))
    value[place] = {
        "element": draw(st.sampled_from([None, "x", True, np.int64(3)])),
        "float": 0.5,
        "huge": 2**63,
        "nested": [1],
    }[kind]
    return value


@st.composite
def features(draw: Any, *, equal: bool = False, labels: str | None = None) -> list[Any]:
    """A batch: columns of rows and of numbers, in any mapping, sometimes with something wrong.

    equal: rows of one length, as the default collator wants them. labels: a column of token labels.
    """
    count = draw(st.integers(1, 5))
    longest = draw(st.integers(0, 9))
    lengths = [longest] * count if equal else draw(st.lists(st.integers(0, longest), min_size=count, max_size=count))
    form = draw(st.sampled_from(["list"] * 4 + ["array"] * 2 + ["tensor"] * 2 + ["tuple"]))
    columns: dict[str, list[Any]] = {}
    names = draw(st.permutations(["input_ids", "attention_mask", "token_type_ids", "special_tokens_mask", "extra"]))
    for name in names:
        if name == "input_ids" or draw(st.booleans()):
            element = "int" if name == "input_ids" else draw(st.sampled_from(["small"] * 6 + ["bool", "float"]))
            same = name != "extra" or draw(st.integers(0, 2)) > 0
            sizes = lengths if name != "extra" else [draw(st.integers(0, 3))] * count if same else lengths
            columns[name] = draw(row_columns(sizes, form, element))
    if labels is not None:
        shorter = draw(st.integers(0, 4)) == 0
        sizes = [max(0, n - 1) for n in lengths] if shorter else lengths
        columns[labels] = draw(row_columns(sizes, form, draw(st.sampled_from(["int"] * 5 + ["bool", "float"]))))
    for name in draw(st.lists(st.sampled_from(["label", "label_ids", "labels", "score"]), unique=True, max_size=2)):
        if name not in columns:
            columns[name] = draw(number_columns(count))
    if draw(st.integers(0, 6)) == 0:
        name, row = draw(st.sampled_from(sorted(columns))), draw(st.integers(0, count - 1))
        columns[name][row] = _odd_value(draw, columns[name][row])
    rows = [{name: values[row] for name, values in columns.items()} for row in range(count)]
    if draw(st.integers(0, 15)) == 0:
        row = draw(st.integers(0, count - 1))
        rows[row].pop(draw(st.sampled_from(sorted(columns))))
    wrapper = WRAPPERS[draw(st.sampled_from(["dict"] * 4 + sorted(WRAPPERS)))]
    return [wrapper(row) for row in rows]


MASKING_TOKENS = {"cls_token": "[CLS]", "sep_token": "[SEP]", "mask_token": "[MASK]"}
WORD_PIECES = {
    **{token: i for i, token in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "##", "#", "[EOS]"])},
    **{(f"##w{i}" if i % 3 == 0 else f"w{i}"): i for i in range(8, 60)},
}


def make_word_piece_tokenizer(**options: Any) -> Any:
    """A tokenizer whose tokens look like BERT's: "##..." within words, and one of the added tokens too."""
    tokenizer = word_level(WORD_PIECES, **{**MASKING_TOKENS, **options})
    tokenizer.add_tokens(["##added", "whole"])
    return tokenizer
