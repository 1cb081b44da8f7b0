"""Where attention cannot be told of rows: modules that work token by token compute real tokens alone."""

from __future__ import annotations

import functools
import threading
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_leaves, tree_map_only

from quadrat.model.rows import Rows
from quadrat.model.thread_state import THREAD


class TokenHooks:
    """The hooks of a module that works token by token: `[rows, width, ...]` in and out, real tokens alone within."""

    def before(self, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None) -> Any:
        """The arguments without padding; torch gives no keywords while another thread adds this hook."""
        rows: Rows | None = THREAD.rows_of_tokens
        if rows is None or kwargs is None or not _have_tokens(rows, args, kwargs):
            return None
        return tree_map_only(torch.Tensor, rows.take, (args, kwargs))

    def after(self, module: Any, args: tuple[Any, ...], output: Any) -> Any:
        """The output with padding."""
        rows: Rows | None = THREAD.rows_of_tokens
        flat = rows is not None and isinstance(output, torch.Tensor) and output.shape[:2] == (1, rows.total)
        return rows.put(output) if rows is not None and flat else None


def add_token_hooks(module: Any) -> None:
    """Let a module compute real tokens alone, where somebody says which they are."""
    if not any(isinstance(getattr(hook, "__self__", None), TokenHooks) for hook in module._forward_pre_hooks.values()):
        hooks = TokenHooks()
        module.register_forward_pre_hook(hooks.before, with_kwargs=True)
        module.register_forward_hook(hooks.after, prepend=True)


def _have_tokens(rows: Rows, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """True if all tensors have a place for each token."""
    tensors = [value for value in tree_leaves((args, kwargs)) if isinstance(value, torch.Tensor)]
    return bool(tensors) and all(tensor.dim() > 2 and tensor.shape[:2] == rows.shape for tensor in tensors)


class Search:
    """Finds the modules of a model that work token by token, while the model computes a padded batch."""

    def __init__(self, model: Any, mask: Any, most: float) -> None:
        self._first_tokens: dict[str, Any] = {}  # of what each module gets
        self._rows, self._most, self._asks, self._failed = Rows.of_mask(mask), most, False, set[str]()
        self._thread = threading.get_ident()
        self._candidates = {name: module for name, module in model.named_modules() if name and _has_matrix(module)}

    def __enter__(self) -> Search:
        self._handles = [
            module.register_forward_hook(functools.partial(self._look, name), with_kwargs=True)
            for name, module in self._candidates.items()
        ]
        return self

    def __exit__(self, *error: object) -> None:
        for handle in self._handles:
            handle.remove()

    def names(self) -> tuple[str, ...]:
        """The outermost modules that work token by token. Experts with a capacity do not: equal tokens share one."""
        names: list[str] = []
        for name in filter((self._first_tokens.keys() - self._failed).__contains__, self._candidates):
            if not name.startswith(tuple(f"{outer}." for outer in names)) and self._takes_equal(name):
                names.append(name)
        return tuple(names)

    def _takes_equal(self, name: str) -> bool:
        """True if a module makes the same of each of many equal tokens."""
        module, first = self._candidates[name], self._first_tokens[name]
        try:
            args, kwargs = tree_map_only(torch.Tensor, lambda value: value.repeat_interleave(1024, 1), first)
            output = module(*args, **kwargs)
            return self._same(output, output[:, :1].expand_as(output))
        except Exception:  # a module that takes no such input
            return False

    def _look(self, name: str, module: Any, args: tuple[Any, ...], *rest: Any) -> None:
        # Other threads call this hook, too, and without keywords while it is added or removed.
        if self._asks or threading.get_ident() != self._thread or not isinstance(output := rest[-1], torch.Tensor):
            return
        if not _have_tokens(self._rows, args, kwargs := rest[0]):
            return
        flat = args, kwargs = tree_map_only(torch.Tensor, self._rows.take, (args, kwargs))
        self._first_tokens[name] = tree_map_only(torch.Tensor, lambda value: value[:, :1].clone(), flat)
        self._asks = True
        try:
            if not self._same(module(*args, **kwargs), self._rows.take(output)):
                self._failed.add(name)
        except Exception:  # a module that takes no such input
            self._failed.add(name)
        finally:
            self._asks = False

    def _same(self, got: Any, expected: Any) -> bool:
        largest = self._most * float(expected.abs().max())
        return got.shape == expected.shape and float((got - expected).abs().max()) <= largest


def _has_matrix(module: Any) -> bool:
    """True if a module multiplies by a matrix: others gain nothing."""
    return any(isinstance(inner, nn.Linear) or type(inner).__name__ == "Conv1D" for inner in module.modules())
