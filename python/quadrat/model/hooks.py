"""The hooks of a model that computes no padding: they take its calls apart, and put their outputs together."""

from __future__ import annotations

import sys
from typing import Any

from quadrat.model.arguments import by_name, padded_mask
from quadrat.model.attention import takes_rows
from quadrat.model.backbone import Flat
from quadrat.model.boundaries import bounded_rows
from quadrat.model.calls import Call, Counts, calls_of_thread
from quadrat.model.decisions import Decisions
from quadrat.model.rows import Rows
from quadrat.model.thread_state import THREAD
from quadrat.support.tensors import recording


class Hooks:
    """The hooks of one model of transformers; models within it have their own.

    They are methods of an object that holds no model: hooks get the model that is called, so a copy of a model computes
    with its own weights.
    """

    def __init__(self, counts: Counts) -> None:
        self.counts, self.decisions = counts, Decisions(counts, _put_all_hooks_in_order)

    def before(self, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Decides how a call is computed, if it is the outermost one; takes apart what gets to a place."""
        if recording():
            return None
        result = self._before(module, args, kwargs)
        THREAD.called.append(module)
        return result

    def _before(self, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if (arguments := by_name(module, args, kwargs)) is None:
            return None
        calls, mask, bounded = calls_of_thread(), None, None
        if calls and calls[-1].runs and calls[-1].root is not module:
            call = calls[-1]
        else:
            mask = padded_mask(arguments, module.config)
            bounded = bounded_rows(arguments, module) if mask is None else None
            if not calls or calls[-1].runs:  # otherwise it is a call of a proof
                call = Call(module, frame=sys._getframe(2))
                if not self.put_in_order(module):
                    call.way, call.shared = self.decisions.way(module, arguments, mask, bounded)
                calls.append(call)
            call = calls[-1]
            call.runs = True
            if mask is not None and call.way is not None and call.way.tokenwise:
                THREAD.rows_of_tokens = call.tokens = Rows.of_mask(mask)
        if (place := call.place_of(module)) is None or self.put_in_order(module):
            return None
        if not takes_rows(implementation := module.config._attn_implementation):
            return None
        if call.way is not None and call.way.bounded:
            THREAD.rows = bounded
            return None if bounded is None else ((), bounded.with_boundaries(arguments))
        mask = padded_mask(arguments, module.config) if mask is None else mask
        if mask is None:
            return None
        flat = Flat(module, mask, call, place)
        taken = flat.take_apart(arguments, implementation)
        call.flat.append(flat)
        THREAD.rows = flat.rows
        return (), taken

    def put_in_order(self, module: Any) -> bool:
        """True if hooks were added that would get what was taken apart; they do not in the next call."""
        before, after = module._forward_pre_hooks, module._forward_hooks
        late = bool(next(reversed(before.values())) != self.before)
        if late or next(iter(after.values())) != self.after:
            before.move_to_end(next(key for key, hook in before.items() if hook == self.before))
            after.move_to_end(next(key for key, hook in after.items() if hook == self.after), last=False)
        return late

    def after(self, module: Any, args: tuple[Any, ...], *rest: Any) -> Any:
        """Puts the outputs of a place together, and ends the call."""
        if THREAD.called and THREAD.called[-1] is module:
            THREAD.called.pop()  # without its attribute `forward`, or after an error
        calls, output = calls_of_thread(), rest[-1]
        if not calls or not calls[-1].runs:
            return None
        call, result = calls[-1], None
        if call.flat and call.flat[-1].module is module:
            flat = call.flat.pop()
            THREAD.rows = None
            if output is not None:  # None after an error
                result = flat.put_together(output)
                rest[0].clear()
                rest[0].update(flat.arguments)  # the next hooks get what the model was called with
                call.paths.setdefault(flat.place, {}).update(flat.put_paths)
                if not call.proof:
                    self.counts.add(flat.rows)
        if call.root is module:
            if call.way is not None and call.way.bounded:
                THREAD.rows = None
            if call.tokens is not None:
                THREAD.rows_of_tokens = None
                if not call.proof:
                    self.counts.add(call.tokens)
            calls.pop()
        return result


def hooks_of(module: Any) -> Hooks | None:
    """The hooks of a model that `remove_padding` was told of."""
    owners = (getattr(hook, "__self__", None) for hook in module._forward_pre_hooks.values())
    return next((owner for owner in owners if isinstance(owner, Hooks)), None)


def _put_all_hooks_in_order(model: Any) -> None:
    for module in model.modules():
        if (hooks := hooks_of(module)) is not None:
            hooks.put_in_order(module)
