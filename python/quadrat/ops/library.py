"""`torch.ops.quadrat`: quadrat's functions as operators of torch 2.4 or later, for `torch.compile`, with derivatives.

Importing this module registers them, for the CPU and CUDA: `pad` and `unpad`, each the derivative of the other, as are
`take_tokens` and `put_tokens`; `flatten`, `mask_tokens` and `mask_layout`. Sizes are arguments, so that no operator
waits for a GPU; there, rows that do not fit are cut. Checks that need no tensor values run both when an operator runs
and when `torch.compile` asks for shapes.
"""

import functools
import math
from collections.abc import Callable
from typing import Any

from quadrat.support.extras import needs

with needs("quadrat.ops.library"):
    import torch

from quadrat.ops import _device
from quadrat.ops._padding import Side, pad_here, unpad_here
from quadrat.ops._tokens import layout_now, put_here, take_here
from quadrat.ops.aligned import Placement
from quadrat.ops.flatten import flatten_here
from quadrat.ops.mask_tokens import mask_tokens
from quadrat.ragged import Ragged
from quadrat.support.arrays import dense
from quadrat.support.kinds import KINDS

if not hasattr(torch.library, "register_autograd"):
    raise ImportError(f"the operators of quadrat need torch 2.4 or later, not {torch.__version__}")

_library: Any = torch.library.Library("quadrat", "DEF")  # type: ignore[no-untyped-call]
_INTEGERS = frozenset(getattr(torch, name) for name in KINDS if "int" in name and hasattr(torch, name))


def _define(schema: str, function: Any, fake: Any, check: Any) -> None:
    """Register an operator, and its shapes for the compiler; `check` looks at the arguments of either first."""
    name = schema.partition("(")[0]
    _library.define(schema, tags=(torch.Tag.pt2_compliant_tag,))

    def checked(run: Any) -> Any:
        @functools.wraps(run)
        def call(*args: Any, **kwargs: Any) -> Any:
            check(*args, **kwargs)
            return run(*args, **kwargs)

        return call

    for key in ("CPU", "CUDA"):
        _library.impl(name, checked(function), key)
    torch.library.register_fake(f"quadrat::{name}", checked(fake), lib=_library)


def _derive(name: str, inverse: str, kept: Callable[..., tuple[Any, ...]]) -> None:
    """Register the derivative: another operator, of the gradient, the second argument and what `kept` returns."""

    def keep(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.kept, ctx.others = kept(*inputs), [None] * (len(inputs) - 1)
        ctx.save_for_backward(inputs[1])

    def derive(ctx: Any, gradient: Any) -> Any:
        return getattr(torch.ops.quadrat, inverse)(gradient, *ctx.saved_tensors, *ctx.kept), *ctx.others

    torch.library.register_autograd(f"quadrat::{name}", derive, setup_context=keep, lib=_library)


def _require(condition: Any, message: Callable[[], str]) -> None:
    """Raises ValueError unless it holds; of sizes that the compiler does not know yet it makes a check at run time."""
    if condition is False:
        raise ValueError(message())
    if condition is not True:
        torch._check_value(condition, message)  # type: ignore[no-untyped-call]


def _check_integers(name: str, numbers: Any, like: Any, count: Any) -> None:
    shape, ints = tuple(numbers.shape), numbers.dim() == 1 and numbers.dtype in _INTEGERS
    _require(ints, lambda: f"{name} must be integers in one dimension, not {numbers.dtype} of shape {shape}")
    _require(shape[0] == count, lambda: f"there must be {count} {name}, not {shape[0]}")
    _check_device(name, numbers, like)


def _check_device(name: str, tensor: Any, like: Any) -> None:
    where, there = tensor.device, like.device
    _require(where == there, lambda: f"{name} are on {where}, the other tensor is on {there}: move one to the other")


def _require_size(size: Any) -> None:
    _require(size >= 0, lambda: f"the size must not be negative, but is {size}")


def _check_rows(values: Any, offsets: Any, size: Any, *_: Any, **__: Any) -> None:
    _require(values.dim() > 0, lambda: "values must have at least one dimension")
    _require(offsets.dim() == 1 and offsets.shape[0] > 0, lambda: "offsets must have one more entry than rows")
    _check_integers("offsets", offsets, values, offsets.shape[0])
    _require_size(size)


def _check_flat(values: Any, offsets: Any, total: Any, *args: Any, **kwargs: Any) -> None:
    _check_rows(values, offsets, total, *args, **kwargs)
    if offsets.shape[0] == 1:
        _require(total == 0, lambda: f"total={total}, but there is no row: position_ids have nothing to continue from")


def _check_padded(padded: Any, offsets: Any, total: Any, *_: Any, **__: Any) -> None:
    _require(padded.dim() > 1, lambda: f"padded must have rows and tokens, but has {padded.dim()} dimension(s)")
    _check_integers("offsets", offsets, padded, padded.shape[0] + 1)
    _require_size(total)


def _pad(values: Any, offsets: Any, length: int, padding_value: Any = 0, left: bool = False) -> Any:
    rows = Ragged(dense(values, "values"), offsets)
    return pad_here(rows, "left" if left else "right", (length, None), padding_value)


def _flatten(values: Any, offsets: Any, total: int, start: int = 0, padding_value: Any = 0) -> Any:
    if values.is_cuda:
        return _device.flatten(values, offsets, total, start=start, padding_value=padding_value)
    rows = Ragged(dense(values, "values"), offsets)
    return tuple(flatten_here(rows, Placement(total_length=total, start=start), padding_value)[:4])


def _fake_flatten(values: Any, offsets: Any, total: int, *_: Any, **__: Any) -> Any:
    sizes = (total, torch.int64), (total, torch.int32), (offsets.shape[0], torch.int32)
    return values.new_empty((total, *values.shape[1:])), *(values.new_empty(size, dtype=kind) for size, kind in sizes)


_MASKING = (
    *("input_ids", "mask_token_id", "vocab_size", "mlm_probability", "mask_replace_prob", "random_replace_prob"),
    *("seed", "epoch", "special_ids", "special_tokens_mask", "row_keys", "lengths", "left"),
)


def _mask_tokens(*args: Any, **kwargs: Any) -> Any:
    given = dict(zip(_MASKING, args, strict=False)) | kwargs
    given["seed"] = given.get("seed", 0) % 2**64
    side: Side = "left" if given.pop("left", False) else "right"
    return tuple(mask_tokens(**given, rng="philox", padding_side=side))


def _check_masking(*args: Any, **kwargs: Any) -> None:
    given = dict(zip(_MASKING, args, strict=False)) | kwargs
    ids, special = given["input_ids"], given.get("special_tokens_mask")
    _require(ids.dtype in _INTEGERS, lambda: f"input_ids must be integers, not {ids.dtype}")
    if special is not None:
        fits, shapes = special.dtype in (*_INTEGERS, torch.bool), (tuple(ids.shape), tuple(special.shape))
        said = "special_tokens_mask must be integers or bools of shape {}, not {} of {}"
        _require(special.shape == ids.shape and fits, lambda: said.format(shapes[0], special.dtype, shapes[1]))
        _check_device("special_tokens_mask", special, ids)
    for name in ("row_keys", "lengths"):
        if given.get(name) is not None:
            _check_integers(name, given[name], ids, math.prod(ids.shape[:-1]))


def _check_tokens(values: Any, indices: Any, *_: Any) -> None:
    _require(values.dim() > 0, lambda: "values must have at least one dimension")
    _check_integers("indices", indices, values, indices.shape[0] if indices.dim() else 0)


def _check_put(values: Any, indices: Any, size: Any) -> None:
    _check_tokens(values, indices)
    _require(values.shape[0] == indices.shape[0], lambda: "there must be as many indices as tokens")
    _require_size(size)


def _check_mask(mask: Any) -> None:
    _require(mask.dim() == 2, lambda: f"the mask must be [rows, width], not {tuple(mask.shape)}")


def _mask_layout(mask: Any) -> Any:
    found = layout_now(mask)
    return *found[:3], torch.tensor(found.longest)


def _fake_mask_layout(mask: Any) -> Any:
    rows, total = mask.shape[0], torch.library.get_ctx().new_dynamic_size()
    sizes = (total, torch.int64), (rows + 1, torch.int32), (rows, torch.int32)
    longest = torch.empty((), dtype=torch.int64, device="cpu")
    return *(mask.new_empty(size, dtype=kind) for size, kind in sizes), longest


_define(
    "pad(Tensor values, Tensor offsets, SymInt length, Scalar padding_value=0, bool left=False) -> Tensor",
    _pad,
    lambda values, offsets, length, *_, **__: values.new_empty((offsets.shape[0] - 1, length, *values.shape[1:])),
    _check_rows,
)
_define(
    "unpad(Tensor padded, Tensor offsets, SymInt total, bool left=False) -> Tensor",
    unpad_here,
    lambda padded, offsets, total, *_, **__: padded.new_empty((total, *padded.shape[2:])),
    _check_padded,
)
_define(
    "flatten(Tensor values, Tensor offsets, SymInt total, int start=0, Scalar padding_value=0) "
    "-> (Tensor, Tensor, Tensor, Tensor)",
    _flatten,
    _fake_flatten,
    _check_flat,
)
_define(
    "mask_tokens(Tensor input_ids, int mask_token_id, int vocab_size, float mlm_probability=0.15, "
    "float mask_replace_prob=0.8, float random_replace_prob=0.1, int seed=0, int epoch=0, int[] special_ids=[], "
    "Tensor? special_tokens_mask=None, Tensor? row_keys=None, Tensor? lengths=None, bool left=False) "
    "-> (Tensor, Tensor)",
    _mask_tokens,
    lambda ids, *_, **__: tuple(torch.empty(ids.shape, dtype=torch.int64, device=ids.device) for _ in range(2)),
    _check_masking,
)
_define(
    "take_tokens(Tensor values, Tensor indices) -> Tensor",
    lambda values, indices: take_here(values, indices, 1),
    lambda values, indices: values.new_empty((indices.shape[0], *values.shape[1:])),
    _check_tokens,
)
_define(
    "put_tokens(Tensor values, Tensor indices, SymInt size) -> Tensor",
    lambda values, indices, size: put_here(values, indices, (size,)),
    lambda values, indices, size: values.new_empty((size, *values.shape[1:])),
    _check_put,
)
_define("mask_layout(Tensor mask) -> (Tensor, Tensor, Tensor, Tensor)", _mask_layout, _fake_mask_layout, _check_mask)
_derive("pad", "unpad", lambda values, offsets, length, padding_value, left: (values.shape[0], left))
_derive("unpad", "pad", lambda padded, offsets, total, left: (padded.shape[1], 0, left))
_derive("take_tokens", "put_tokens", lambda values, indices: (values.shape[0],))
_derive("put_tokens", "take_tokens", lambda values, indices, size: ())
