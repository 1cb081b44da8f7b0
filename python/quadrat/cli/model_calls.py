"""The padding that models of transformers are called with, and its removal with `quadrat run --remove-padding`.

Whatever calls a model (a Trainer, a pipeline, sentence-transformers, a loop), the outermost model is looked at.
"""

import weakref
from collections.abc import Callable
from typing import Any

import quadrat
from quadrat.cli.command import one_line
from quadrat.cli.loop_timing import LoopTiming
from quadrat.support.wrappers import wrap_method

# Masks on a GPU wait for each other, so that reading them does not have the script wait for the GPU at each call.
_FIRST, _TOGETHER = 8, 64


class ModelCalls:
    """The calls of models in a process."""

    def __init__(self, timing: LoopTiming, say: Callable[[str], None], *, removes: bool) -> None:
        self._timing, self._say, self._removes = timing, say, removes
        self._accepted: weakref.WeakKeyDictionary[Any, bool] = weakref.WeakKeyDictionary()  # models, by remove_padding
        self.begin()

    def begin(self) -> None:
        """A process begins, or a fork."""
        self._number = 0
        self._unread: list[tuple[str, int, Any]] = []  # what a call belongs to, its tokens with padding, and without

    def watch(self, cls: Any) -> None:
        """Has the calls of a class of models, and of those derived from it, counted."""
        import torch

        wrap_method(cls, "__call__", self._begin_call, self._end_call, unless=torch.compiler.is_compiling)

    def _begin_call(self, model: Any, *args: Any, **options: Any) -> tuple[Any, int, int] | None:
        """Returns what removes the padding, or None, and the padding and tokens that it has left out.

        Returns None within another model.
        """
        thread, removal = self._timing.thread, None
        if thread.calls_model:
            return None
        thread.calls_model = True
        try:
            mask = _mask_of(model, args, options)
            if mask is not None and self._count(mask) and self._removes and self._accepted.get(model, True):
                if model not in self._accepted:
                    self._timing.events.write("options", met="--remove-padding")
                self._accepted[model] = False
                removal = quadrat.remove_padding(model)
                self._accepted[model] = True
        except Exception as error:  # the script goes on without
            self._say(f"padding is not removed from {type(model).__name__}: {one_line(error)}")
        return (removal, 0, 0) if removal is None else (removal, removal.removed, removal.shared)

    def _end_call(self, state: tuple[Any, int, int] | None, result: Any) -> None:
        if state is None:
            return
        self._timing.thread.calls_model = False
        removal, removed, shared = state
        if removal is not None and not isinstance(result, BaseException):
            counts = {"removed": removal.removed - removed, "shared": removal.shared - shared}
            self._timing.events.write(self._timing.of, **counts)
            for reason in filter(self._timing.events.is_first, removal.left):  # which the log says, too
                self._timing.events.write("remarks", texts=reason)

    def _count(self, mask: Any) -> bool:
        """Counts a call. Returns whether its mask has padding, as far as that is known."""
        import torch

        if mask.is_meta or (mask.is_cuda and torch.cuda.is_current_stream_capturing()):
            return False
        tokens = (mask != 0).sum()
        self._unread.append((self._timing.of, mask.numel(), tokens))
        self._number += 1
        if mask.device.type == "cpu" or self._number <= _FIRST or len(self._unread) >= _TOGETHER:
            self.read()
            return bool(int(tokens) < mask.numel())
        return True

    def read(self) -> None:
        """Writes the events of calls whose tokens were not read."""
        unread, self._unread = self._unread, []
        for of, computed, tokens in unread:
            self._timing.events.write(of, model_calls=1, model_computed=computed, model_tokens=int(tokens))


def _mask_of(model: Any, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """The mask of the tokens that a call computes, `[rows, width]` or `[rows, choices, width]`, or None."""
    from quadrat.model.arguments import by_name  # which imports torch

    named = by_name(model, args, options) or {}
    mask, ids, embeddings = (named.get(name) for name in ("attention_mask", "input_ids", "inputs_embeds"))
    shape = getattr(ids, "shape", None) if embeddings is None else getattr(embeddings, "shape", (0,))[:-1]
    return mask if shape is not None and len(shape) in (2, 3) and getattr(mask, "shape", None) == shape else None
