"""What a model must give without padding: what a copy of it gives that computes padding."""

from collections.abc import Iterator
from typing import Any

import torch


def leaves(output: Any, name: str = "output") -> Iterator[tuple[str, Any]]:
    """All tensors of an output but those of a cache, by name."""
    if isinstance(output, torch.Tensor):
        yield name, output
    elif isinstance(output, dict):
        for key, value in {**output, **getattr(output, "__dict__", {})}.items():
            if key != "past_key_values":
                yield from leaves(value, f"{name}.{key}")
    elif isinstance(output, (list, tuple)):
        for place, value in enumerate(output):
            yield from leaves(value, f"{name}.{place}")


def assert_same(
    expected: Any, got: Any, mask: Any, most: float = 1e-11, *, zeros: bool = False, scores: bool = False
) -> None:
    """Outputs of real tokens, and those without a place for each token, are the same; with zeros, 0 at padding.

    scores: outputs of two dimensions are scores of rows, even if they are as wide as the batch.
    """
    wanted, present = dict(leaves(expected)), dict(leaves(got))
    assert list(present) == list(wanted)
    real = mask != 0
    for (name, value), other in zip(wanted.items(), present.values(), strict=True):
        pair = other, value
        assert other.shape == value.shape, name
        assert other.dtype == value.dtype, name
        if value.dim() > 1 and len(value) == len(real) and value.shape[1] <= real.shape[1] and value.shape != (1, 1):
            kept = real[:, real.shape[1] - value.shape[1] :]
            if value.dim() > 2 or (value.shape[1] == real.shape[1] and not scores):
                assert not zeros or not other[~kept].any(), name
                pair = other[kept], value[kept]
        limit = max(most, 1e-6) if value.dtype == torch.float32 else most  # of a loss in float32
        scale = max([1e-3, *pair[1].detach().nan_to_num(posinf=0, neginf=0).abs().flatten().tolist()])
        torch.testing.assert_close(*pair, rtol=0, atol=limit * scale, equal_nan=True, msg=name)


def assert_same_gradients(reference: Any, model: Any, most: float = 1e-9) -> None:
    """Gradients of all parameters, relative to the largest of the model: those of key biases are 0 but for rounding."""
    gradients = [parameter.grad for parameter in reference.parameters() if parameter.grad is not None]
    scale = max(float(gradient.nan_to_num(0, 0, 0).abs().max()) for gradient in gradients)
    assert scale > 0
    others = dict(model.named_parameters())
    for name, parameter in reference.named_parameters():
        gradient, other = parameter.grad, others[name].grad
        assert (gradient is None) == (other is None), name
        if gradient is not None:
            # Eager attention of transformers 4.57 makes nan of those of a row without tokens.
            finite = gradient.isfinite()
            torch.testing.assert_close(other[finite], gradient[finite], rtol=0, atol=most * scale, msg=name)


def way(removed: Any) -> str:
    """Which way batches got: "flat", "token by token" or "left"."""
    if not removed.removed:
        return "left"
    return "token by token" if "each by itself" in str(removed) else "flat"
