"""`unpad_many` and `pad_many`: several tensors without their padding, by one mask, and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from quadrat.support.extras import needs

with needs("quadrat.varlen.unpad_many"):
    import torch

from quadrat.ops._tokens import require_mask
from quadrat.ops.tokens import layout_of, put, take
from quadrat.support.tensors import recording


class Unpadded(NamedTuple):
    """The result of `unpad_many`."""

    tensors: tuple[Any, ...]
    indices: Any  # the places of the tokens in the flattened mask
    cu_seqlens: Any
    max_seqlen: int


def unpad_many(mask: Any, *tensors: Any) -> Unpadded:
    """Remove the padding of several tensors by one mask: ids, log-probabilities, advantages, loss masks.

    The mask is read once: on a GPU the call waits once for all tensors. Gradients flow back through each.

    Args:
        mask: `[rows, width]`, bools or integers, 1 for tokens and 0 for padding, which may lie anywhere. Or several
            masks for parts of the rows, side by side, such as prompts, padded left, and responses, padded right.
        tensors: `[rows, width, ...]` each, of any dtype, on the device of the mask; with several masks, a sequence of
            one tensor per mask, or one tensor of their total width.

    Returns:
        The tensors without padding, `[total, ...]`, in a tuple; indices, `[total]` int64; cu_seqlens, `[rows + 1]`
        int32; and the length of the longest row, an int.

    Raises:
        TypeError: when something is not a tensor.
        ValueError: when shapes or devices differ; the message says which tensor it is.

    Examples:
        >>> import torch, quadrat
        >>> masks = torch.tensor([[0, 1], [1, 1]]), torch.tensor([[1, 1], [1, 0]])
        >>> prompts, responses = torch.tensor([[0, 1], [2, 3]]), torch.tensor([[4, 5], [6, 0]])
        >>> unpadded = quadrat.varlen.unpad_many(masks, (prompts, responses))
        >>> unpadded.tensors[0].tolist(), unpadded.cu_seqlens.tolist()
        ([1, 4, 5, 2, 3, 6], [0, 3, 6])
    """
    joined, widths = _joined(mask)
    padded = [_joined_tensor(tensor, joined, widths, place) for place, tensor in enumerate(tensors)]
    indices, cu_seqlens, _, longest = layout_of(joined)
    return Unpadded(tuple(take(tensor, indices, 2) for tensor in padded), indices, cu_seqlens, longest)


def pad_many(mask: Any, *tensors: Any) -> tuple[Any, ...]:
    """Put the tokens of several tensors back in their places, with zeros elsewhere; the inverse of `unpad_many`.

    Args:
        mask: the mask, or masks, given to `unpad_many`.
        tensors: `[total, ...]` each, of any dtype, on the device of the mask.

    Returns:
        A tuple of tensors, `[rows, width, ...]` each; with several masks, each is a tuple of its parts.

    Raises:
        TypeError: when something is not a tensor.
        ValueError: when devices differ, or a tensor has more or fewer tokens than the mask keeps.

    Examples:
        >>> import torch, quadrat
        >>> quadrat.varlen.pad_many(torch.tensor([[1, 1, 0], [0, 1, 0]]), torch.tensor([5, 6, 7]))[0].tolist()
        [[5, 6, 0], [0, 7, 0]]
    """
    joined, widths = _joined(mask)
    indices, padded = layout_of(joined).indices, []
    for place, tensor in enumerate(tensors):
        _require(tensor, joined, place)
        if not recording() and tensor.shape[:1] != indices.shape:  # while torch records, the operator checks it
            said = f"must have the {len(indices)} tokens of the mask, not shape {list(tensor.shape)}"
            raise ValueError(f"tensor {place} {said}")
        whole = put(tensor, indices, tuple(joined.shape))
        padded.append(whole if widths is None else tuple(whole.split(widths, 1)))
    return tuple(padded)


def _joined(mask: Any) -> tuple[Any, list[int] | None]:
    """The mask, and the widths of its parts where there are several."""
    parts = mask if isinstance(mask, Sequence) else [mask]
    for part in parts:
        require_mask(part)
    if parts is not mask:
        return mask, None
    if len({(len(part), part.device) for part in mask}) != 1:
        raise ValueError(f"masks must have the same rows, on one device, not {[list(part.shape) for part in mask]}")
    return torch.cat(list(mask), 1), [part.shape[1] for part in mask]


def _joined_tensor(tensor: Any, mask: Any, widths: list[int] | None, place: int) -> Any:
    if isinstance(tensor, Sequence) and widths is not None:
        for part in tensor:
            _require(part, mask, place)
        shapes, expected = [list(part.shape[:2]) for part in tensor], [[mask.shape[0], width] for width in widths]
        if shapes != expected:
            raise ValueError(f"the parts of tensor {place} must be {expected}, like the masks, not {shapes}")
        tensor = torch.cat(list(tensor), 1)
    _require(tensor, mask, place)
    if tuple(tensor.shape[:2]) != tuple(mask.shape):
        raise ValueError(f"tensor {place} must be {list(mask.shape)}, like the mask, not {list(tensor.shape[:2])}")
    return tensor


def _require(tensor: Any, mask: Any, place: int) -> None:
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"tensor {place} must be a torch tensor, not {type(tensor).__name__}")
    if tensor.device != mask.device:
        raise ValueError(f"tensor {place} is on {tensor.device}, the mask on {mask.device}")
