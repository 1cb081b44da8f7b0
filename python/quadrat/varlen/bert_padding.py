"""The functions of `flash_attn.bert_padding`, in one pass, with one wait for a GPU at most.

All have gradients, of any order, and compile without graph breaks.
"""

from typing import Any

import torch

from quadrat.ops._padding import as_int
from quadrat.ops._tokens import launched_layout
from quadrat.ops.tokens import layout_of, put, take
from quadrat.support.extras import needs
from quadrat.support.tensors import is_readable, is_tensor, on_gpu, recording

__all__ = [
    "index_first_axis",
    "index_first_axis_residual",
    "index_put_first_axis",
    "pad_input",
    "unpad_input",
    "unpad_input_for_concatenated_sequences",
]


def index_first_axis(input: Any, indices: Any) -> Any:
    """Return the tokens at these indices: `input[indices]`.

    Args:
        input: `[tokens, ...]`, of any dtype, on the CPU or a GPU.
        indices: `[count]` integers from 0, on the same device.

    Returns:
        `[count, ...]`. A token that is taken several times gets the gradient of only one of them, as in flash-attn.

    Raises:
        IndexError: on the CPU, when an index is out of range; on a GPU the result is zero there.
        TypeError: when the indices are not a tensor.
        ValueError: when the indices are not 1-D integers, or on another device.

    Examples:
        >>> import torch, quadrat
        >>> quadrat.bert_padding.index_first_axis(torch.tensor([[1.0], [2.0], [3.0]]), torch.tensor([2, 0])).tolist()
        [[3.0], [1.0]]
    """
    _require_indices(indices, input)
    return take(input, indices)


def index_put_first_axis(values: Any, indices: Any, first_axis_dim: int) -> Any:
    """Put tokens at these indices, with zeros elsewhere; the inverse of `index_first_axis`.

    Args:
        values: `[count, ...]`, of any dtype, on the CPU or a GPU.
        indices: `[count]` integers from 0, on the same device.
        first_axis_dim: the length of the result.

    Returns:
        `[first_axis_dim, ...]`. If several tokens have the same index, one of them is kept.

    Raises:
        IndexError: on the CPU, when an index is out of range.
        TypeError: when the indices are not a tensor, or `first_axis_dim` is not an int.
        ValueError: when there are more or fewer indices than tokens, they are not 1-D integers, or on another device.

    Examples:
        >>> import torch, quadrat
        >>> quadrat.bert_padding.index_put_first_axis(torch.tensor([[1.0], [2.0]]), torch.tensor([2, 0]), 3).tolist()
        [[2.0], [0.0], [1.0]]
    """
    _require_indices(indices, values)
    return put(values, indices, _shape(first_axis_dim=first_axis_dim))


class _Residual(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tokens: Any, indices: Any) -> Any:
        ctx.save_for_backward(indices)
        return take(tokens, indices), tokens.detach()

    @staticmethod
    def backward(ctx: Any, gradient: Any, residual: Any) -> Any:
        (indices,) = ctx.saved_tensors
        return residual.index_add(0, indices.long(), gradient), None


def index_first_axis_residual(input: Any, indices: Any) -> tuple[Any, Any]:
    """`index_first_axis`, and the input itself for a residual connection; their gradients are added.

    Args:
        input, indices: as for `index_first_axis`.

    Returns:
        `[count, ...]` and `[tokens, ...]`. The gradients of a token that is taken several times add up.

    Raises:
        IndexError, TypeError, ValueError: as `index_first_axis`.

    Examples:
        >>> import torch, quadrat
        >>> tokens = torch.ones(3, 1, requires_grad=True)
        >>> taken, residual = quadrat.bert_padding.index_first_axis_residual(tokens, torch.tensor([2, 0]))
        >>> (taken.sum() + residual.sum()).backward()
        >>> tokens.grad.tolist()
        [[2.0], [1.0], [2.0]]
    """
    _require_indices(indices, input)
    if recording():
        return input.index_select(0, indices.long()), input.view_as(input)
    taken, residual = _Residual.apply(input, indices)  # type: ignore[no-untyped-call]
    return taken, residual


def unpad_input(
    hidden_states: Any, attention_mask: Any, unused_mask: Any = None, *, return_seqused: bool = True
) -> tuple[Any, ...]:
    """Remove the padding of a batch, and return where its sequences are, as attention kernels without padding need it.

    Args:
        hidden_states: `[batch, seqlen, ...]`, of any dtype, on the CPU or a GPU, with padding anywhere.
        attention_mask: `[batch, seqlen]`, bools or integers, 1 for tokens and 0 for padding, on the same device.
        unused_mask: the same for places that are reserved but hold no token yet: all values but the last include them.
        return_seqused: whether to return five values, as flash-attn does since September 2024, or only the first four.

    Returns:
        The tokens, `[total, ...]`; indices, `[total]` int64, their places in the flattened batch; cu_seqlens,
        `[batch + 1]` int32, where sequences begin and end; max_seqlen, an int, 0 for a batch without rows; seqused,
        `[batch]` int32, the tokens of each sequence.

    Raises:
        TypeError: when the mask is not a tensor.
        ValueError: when the mask is not `[batch, seqlen]`, or on another device.

    Examples:
        >>> import torch, quadrat
        >>> ids, mask = torch.tensor([[5, 6, 0], [0, 7, 0]]), torch.tensor([[1, 1, 0], [0, 1, 0]])
        >>> ids, indices, cu_seqlens, max_seqlen, seqused = quadrat.bert_padding.unpad_input(ids, mask)
        >>> ids.tolist(), indices.tolist(), cu_seqlens.tolist(), max_seqlen, seqused.tolist()
        ([5, 6, 7], [0, 1, 4], [0, 2, 3], 2, [2, 1])
    """
    _require_same_place(hidden_states, attention_mask)
    if unused_mask is not None:
        _require_same_place(hidden_states, unused_mask)
    layout = layout_of(attention_mask if unused_mask is None else attention_mask + unused_mask)
    used = layout.lengths if unused_mask is None else attention_mask.sum(dim=-1, dtype=torch.int32)
    longest = layout.longest.item() if recording() else layout.longest
    four = take(hidden_states, layout.indices, 2), layout.indices, layout.cu_seqlens, longest
    return (*four, used) if return_seqused else four


def pad_input(hidden_states: Any, indices: Any, batch: int, seqlen: int) -> Any:
    """Put the tokens of a batch back in their places, with zeros elsewhere; the inverse of `unpad_input`.

    Args:
        hidden_states: `[total, ...]`, of any dtype, on the CPU or a GPU.
        indices: `[total]` integers, their places in the flattened batch, on the same device.
        batch: the number of rows of the batch.
        seqlen: the number of tokens of a row, including padding.

    Returns:
        `[batch, seqlen, ...]`.

    Raises:
        IndexError, TypeError, ValueError: as `index_put_first_axis`.

    Examples:
        >>> import torch, quadrat
        >>> quadrat.bert_padding.pad_input(torch.tensor([5, 6, 7]), torch.tensor([0, 1, 4]), 2, 3).tolist()
        [[5, 6, 0], [0, 7, 0]]
    """
    _require_indices(indices, hidden_states)
    return put(hidden_states, indices, _shape(batch=batch, seqlen=seqlen))


def unpad_input_for_concatenated_sequences(
    hidden_states: Any, attention_mask_in_length: Any
) -> tuple[Any, Any, Any, int]:
    """Remove the padding of a batch whose rows hold several sequences each, one after the other from the left.

    Args:
        hidden_states: `[batch, seqlen, ...]`, of any dtype, on the CPU or a GPU.
        attention_mask_in_length: `[batch, seqlen]` integers: in each row the lengths of its sequences, and zeros, on
            the same device.

    Returns:
        The tokens, `[total, ...]`; indices, `[total]` int64, their places in the flattened batch; cu_seqlens,
        `[sequences + 1]` int32, where sequences begin and end; the length of the longest, an int, 0 without sequences.

    Raises:
        TypeError, ValueError: as `unpad_input`, for the lengths.

    Examples:
        >>> import torch
        >>> from quadrat.bert_padding import unpad_input_for_concatenated_sequences
        >>> ids, lengths = torch.tensor([[5, 6, 7, 0], [8, 9, 0, 0]]), torch.tensor([[2, 1, 0, 0], [2, 0, 0, 0]])
        >>> tokens, indices, cu_seqlens, longest = unpad_input_for_concatenated_sequences(ids, lengths)
        >>> tokens.tolist(), indices.tolist(), cu_seqlens.tolist(), longest
        ([5, 6, 7, 8, 9], [0, 1, 2, 4, 5], [0, 2, 3, 5], 2)
    """
    lengths = attention_mask_in_length
    _require_same_place(hidden_states, lengths)
    kept = torch.arange(lengths.shape[1], device=lengths.device) < lengths.sum(dim=-1)[:, None]
    at_once = on_gpu(lengths) and not recording() and is_readable(lengths) and lengths.numel() > 0
    if at_once and not lengths.is_floating_point():
        (tokens, indices, *_), (sequences, places, *_) = map(launched_layout, (kept, (lengths != 0).contiguous()))
        total, count, longest = torch.stack([tokens[0], sequences[0], lengths.max().long()]).tolist()
        indices, places = indices[:total], places[:count]
    else:
        longest = lengths.max().item() if lengths.numel() > 0 else 0
        (indices, *_), (places, *_) = layout_of(kept), layout_of(lengths != 0)
    bounds = torch.cumsum(lengths.flatten()[places], dim=0, dtype=torch.int32)
    return take(hidden_states, indices, 2), indices, torch.nn.functional.pad(bounds, (1, 0)), longest


def _require_indices(indices: Any, tokens: Any) -> None:
    if not is_tensor(indices):
        raise TypeError(f"indices must be a torch tensor, not {type(indices).__name__}")
    shape = tuple(indices.shape)
    if len(shape) != 1 or indices.dtype not in (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8):
        raise ValueError(f"indices must be integers, one per token, not {indices.dtype} of shape {shape}")
    if indices.device != tokens.device:
        raise ValueError(f"indices are on {indices.device}, the tokens on {tokens.device}: move one to the other")


def _shape(**sizes: Any) -> tuple[Any, ...]:
    for name, size in sizes.items():
        # While torch records, a size may be a symbol, which must stay one.
        if type(size) is not int and (isinstance(size, float) or not recording()):
            sizes[name] = as_int(size, name)
    return tuple(sizes.values())


def _require_same_place(hidden_states: Any, mask: Any) -> None:
    if not is_tensor(mask):
        raise TypeError(f"the mask must be a torch tensor, not {type(mask).__name__}")
    if mask.dim() != 2:
        raise ValueError(f"the mask must be [rows, width], not {list(mask.shape)}")
    if mask.shape != hidden_states.shape[:2]:
        raise ValueError(f"the mask must be {list(hidden_states.shape[:2])}, not {list(mask.shape)}")
    if mask.device != hidden_states.device:
        raise ValueError(f"the mask is on {mask.device}, the tokens on {hidden_states.device}")


def __getattr__(name: str) -> Any:
    if name not in ("rearrange", "repeat"):  # some code imports these from flash_attn.bert_padding
        raise AttributeError(f"module 'quadrat.bert_padding' has no attribute {name!r}")
    with needs(f"quadrat.bert_padding.{name}"):
        import einops  # type: ignore[import-not-found]

    return getattr(einops, name)
