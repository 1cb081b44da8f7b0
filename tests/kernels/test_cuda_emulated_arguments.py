"""Arguments that no CUDA kernel can take are refused before anything is read or written: the addresses are not real."""

import re
from typing import Any

import pytest

from quadrat import _core
from support.compiled import emulated, host
from support.philox import HOW

ROWS = {"offsets": 64, "rows": 2, "width": 3, "left": False}
IDS = {"ids": 64, "labels": 64}
MASKING = {"options": HOW, "row_keys": 64, **ROWS, "set": 64, "set_size": 2, **IDS}
PADDING = {"pads": True, "values": 64, "values_size": 4, "fill": 0, "attention_mask": 64}  # with philox_mask
# What each kernel takes, its addresses and how far from a multiple they are tried, and its sizes.
KERNELS: dict[str, tuple[dict[str, Any], dict[str, int], tuple[str, ...]]] = {
    "causal_labels": ({"count": 3, "pad_id": 0, **IDS}, {"ids": 4, "labels": 4}, ("count",)),
    "row_keys": (
        {"values": 64, "values_size": 3, **ROWS, "width": 0, "flat": True, "out": 64},
        {"values": 4, "offsets": 4, "out": 4},
        ("values_size", "rows"),
    ),
    "philox_mask": (
        {**MASKING, "flat": False, "words": 64, "out_size": 6, **dict.fromkeys(PADDING, 0), "pads": False},
        {"row_keys": 4, "offsets": 4, "set": 4, "ids": 4, "labels": 4},
        ("set_size", "out_size"),
    ),
    "unpad": (
        {"padded": 64, **ROWS, "item": 4, "inner": 1, "out": 64, "out_size": 6},
        {"padded": 66, "offsets": 66, "out": 66},
        ("rows", "width", "inner", "out_size"),
    ),
    "mask_layout": (
        {"mask": 64, "item": 1, "rows": 1, "width": 1, "state": 64, "indices": 64, "cu_seqlens": 64, "lengths": 64},
        {"state": 68, "indices": 68, "cu_seqlens": 66, "lengths": 66},
        (),
    ),
    "take_tokens": (
        {"values": 64, "size": 1, "token": 1, "indices": 64, "count": 1, "out": 64},
        {"indices": 68},
        ("size", "count"),
    ),
}
OTHERS = [
    ("row_keys", {"flat": False}, "must be values_size"),
    *(("philox_mask", {name: -1}, "must not be negative") for name in ("rows", "width")),
    ("philox_mask", {"out_size": 7}, "must be out_size"),
    ("philox_mask", {"flat": True, "rows": 0}, "must be empty"),
    *(
        ("philox_mask", {"words": 0, **PADDING, **change}, message)
        for message, *changes in (
            ("not a multiple", {"values": 4}, {"attention_mask": 4}),
            ("null", {"values": 0}),
            ("must not be negative", {"values_size": -1}),
            ("too large", {"values_size": 2**62}),
            ("single words", {"words": 64}, {"flat": True}),
        )
        for change in changes
    ),
    ("unpad", {"item": 3}, "item must be"),
    ("unpad", {"rows": 0}, "must be empty"),
    *(("mask_layout", {name: number}, "must") for name in ("rows", "width") for number in (0, -1)),
    ("mask_layout", {"item": 3}, "item must be"),
    ("take_tokens", {"token": -1}, "must not be negative"),
    *(("take_tokens", {name: 0}, "null") for name in ("values", "out")),
]


@pytest.mark.parametrize(
    ("kernel", "change", "message"),
    [
        *(
            (kernel, {name: odd}, "not a multiple")
            for kernel, (_, at, _) in KERNELS.items()
            for name, odd in at.items()
        ),
        *((kernel, {name: 0}, "null") for kernel, (_, at, _) in KERNELS.items() for name in at),
        *((kernel, {name: -1}, "must not be negative") for kernel, (*_, sizes) in KERNELS.items() for name in sizes),
        *((kernel, {name: 2**62}, "too large") for kernel, (*_, sizes) in KERNELS.items() for name in sizes),
        *OTHERS,
    ],
)
def test_arguments_no_kernel_can_take(kernel: str, change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        getattr(emulated, kernel)(**KERNELS[kernel][0] | change)


PADDED = (64, 4, 64, 3, False, 4, 1, 0, 0, 64)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        *(({5: item}, "item must be") for item in (0, 3)),
        ({3: -1}, "must not be negative"),
        ({1: -1}, "a size is negative"),
        ({6: -1}, "inner must not be negative"),
        ({3: 2**62}, "too large"),
        ({1: 2**40, 6: 2**40}, "too large"),
        *(({place: odd}, "not a multiple") for place, odd in ((0, 66), (9, 65), (2, 68))),
        *(({place: 0}, "null") for place in (0, 2, 9)),
    ],
)
def test_columns_pad_columns_cannot_take(change: dict[int, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        emulated.pad_columns([tuple(change.get(i, number) for i, number in enumerate(PADDED))], 2)


COPIED, SEPARATED = _core.FLAT_CONTENTS.VALUES, _core.FLAT_CONTENTS.SEPARATED
POSITIONS, SEQUENCES, BOUNDS = _core.FLAT_CONTENTS.POSITIONS, _core.FLAT_CONTENTS.SEQUENCES, _core.FLAT_CONTENTS.BOUNDS
FLAT = {"offsets": 64, "rows": 2, "out_size": 4}
FLAT_COLUMNS = [
    *((source, 64, 4, 1, 4, 0, 0, 64) for source in (COPIED, SEPARATED)),
    *((source, 0, 0, 1, item, 0, 0, 64) for source, item in ((POSITIONS, 8), (SEQUENCES, 4), (BOUNDS, 4))),
]


@pytest.mark.parametrize(
    ("column", "message"),
    [
        *(((source, 64, 4, 1, 8, 0, 0, 64), "no such content") for source in (5, -1)),
        ((COPIED, 64, 4, 1, 4, 0, 0), "eight numbers"),
        ((COPIED, 64, 4, 1, 3, 0, 0, 64), "item must be"),
        ((COPIED, 64, -1, 1, 4, 0, 0, 64), "a size is negative"),
        ((COPIED, 64, 4, -1, 4, 0, 0, 64), "inner must not be negative"),
        ((COPIED, 64, 2**40, 2**40, 4, 0, 0, 64), "too large"),
        ((POSITIONS, 0, 0, 1, 4, 0, 0, 64), "8 bytes"),
        ((SEQUENCES, 0, 0, 1, 8, 0, 0, 64), "4 bytes"),
        ((BOUNDS, 0, 0, 1, 8, 0, 0, 64), "4 bytes"),
        ((POSITIONS, 0, 0, 2, 8, 0, 0, 64), "inner must be 1"),
        ((COPIED, 0, 4, 1, 4, 0, 0, 64), "null"),
        ((COPIED, 66, 4, 1, 4, 0, 0, 64), "not a multiple"),
        *(((*column[:-1], 0), "null") for column in FLAT_COLUMNS),
        *(((*column[:-1], 65), "not a multiple") for column in FLAT_COLUMNS),
    ],
)
def test_columns_flatten_columns_cannot_take(column, message):
    with pytest.raises(ValueError, match=message):
        emulated.flatten_columns([column], **FLAT)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        *(({name: -1}, "must not be negative") for name in ("rows", "out_size")),
        ({"rows": 0}, "without rows"),
        ({"offsets": 68}, "not a multiple"),
        ({"offsets": 0}, "null"),
    ],
)
def test_batches_flatten_columns_cannot_take(change, message):
    with pytest.raises(ValueError, match=message):
        emulated.flatten_columns(FLAT_COLUMNS, **FLAT | change)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: emulated.pad_columns([PADDED] * 17, 2), "16 columns"),
        (lambda: emulated.flatten_columns([FLAT_COLUMNS[0]] * 17, **FLAT), "16 columns"),
        (lambda: emulated.pad_columns([PADDED[:9]], 2), "ten numbers"),
        (lambda: emulated.pad_columns([], -1), "must not be negative"),
        (lambda: emulated.pad_columns([PADDED], 2**40), "more blocks"),
    ],
)
def test_a_launch_takes_so_many_columns_and_blocks(call, message):
    with pytest.raises(ValueError, match=message):
        call()


HOST = {"row_keys": 0, "start": 0, "lengths": 0, "rows": 0, "words": 0, "ids": 0, "labels": 0, "count": 0}
TAKE_OPTIONS = {
    "the host's kernel": lambda options: host.philox_mask(options, **HOST),
    "the collators": lambda options: _core.PhiloxLabels(options, []),
    "the GPU's kernel": lambda options: emulated.philox_mask(
        **KERNELS["philox_mask"][0] | {"options": options, "rows": 0, "out_size": 0}
    ),
}


@pytest.mark.parametrize("take", TAKE_OPTIONS.values(), ids=TAKE_OPTIONS)
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({}, None),
        ({"mlm_probability": 1.5}, "mlm_probability must be between 0 and 1, not 1.5"),
        ({"mask": float("nan")}, "mask_replace_prob must be between 0 and 1, not nan"),
        ({"random": -0.1}, "random_replace_prob must be between 0 and 1, not -0.1"),
        ({"random": 0.3}, "mask_replace_prob and random_replace_prob must not exceed 1 together: 0.8 + 0.3"),
        ({"mask": 0.9, "random": 0.1}, None),
        ({"vocab_size": 0}, "vocab_size must be between 1 and 268435455, not 0"),
        ({"vocab_size": 2**28}, "vocab_size must be between 1 and 268435455, not 268435456"),
        ({"vocab_size": 2**28 - 1}, None),
        ({"seed": 2**64 - 1, "epoch": 2**32 - 1}, None),
    ],
)
def test_host_and_device_take_the_same_options(take: Any, change: dict[str, Any], message: str | None) -> None:
    if message is None:
        take(HOW._replace(**change))
        return
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        take(HOW._replace(**change))


@pytest.mark.parametrize("take", TAKE_OPTIONS.values(), ids=TAKE_OPTIONS)
@pytest.mark.parametrize("change", [{"seed": 2**64}, {"seed": -1}, {"epoch": 2**32}, {"mask_id": None}, {"mask": "1"}])
def test_host_and_device_take_no_other_numbers(take: Any, change: dict[str, Any]) -> None:
    for options in (HOW._replace(**change), HOW[:-1]):
        with pytest.raises(TypeError, match="incompatible"):
            take(options)
