"""The hooks of a model that computes no padding: they decide how a call is computed, and take it apart."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from quadrat.model import proof
from quadrat.model.arguments import LABELS, MASK, POSITIONS, by_name, has_cache, of_tokens, padded_mask
from quadrat.model.attention import RowsLostError, restore_names, set_names, takes_rows
from quadrat.model.backbone import Flat, Path
from quadrat.model.boundaries import BoundedRows, bounded_rows
from quadrat.model.prefixes import SharedRows, drops, shared_rows
from quadrat.model.proof import Lockstep, is_sharded
from quadrat.model.rows import Rows
from quadrat.model.thread_state import THREAD
from quadrat.model.tokenwise import Search, add_token_hooks
from quadrat.model.ways import Way, flat_ways, form_of, sentence_of
from quadrat.support.locks import new_lock
from quadrat.support.tensors import recording

logger = logging.getLogger("quadrat")
_proving, _counting = new_lock(), new_lock()


@dataclass(frozen=True)
class Decision:
    """How calls of one form are computed, and up to which size that is proven. Without a way they stay as they are."""

    way: Way | None
    longest: int
    width: int


@dataclass
class Call:
    """A call of a model in this thread, and its modules that are taken apart now. Without a way it stays as it is."""

    root: Any
    way: Way | None
    proof: bool = False
    runs: bool = False
    flat: list[Flat] = field(default_factory=list)
    paths: dict[str, dict[Path, int]] = field(default_factory=dict)
    tokens: Rows | None = None
    shared: SharedRows | None = None
    bounded: bool = False  # a flat batch whose boundaries were told
    frame: Any = None  # in which the model is called

    def place_of(self, module: Any) -> str | None:
        """The name of a module that is taken apart."""
        places = () if self.way is None else self.way.places
        return next((name for name in places if self.root.get_submodule(name) is module), None)


def _calls() -> list[Call]:
    """The calls that run in this thread: one, and within a proof two."""
    calls: list[Call] = THREAD.calls
    if calls and calls[-1].frame is not None and not _runs(calls[-1].frame):
        calls.clear()  # of a call that an interrupt ended: torch calls no hook then
        THREAD.rows = THREAD.rows_of_tokens = None
    return calls


def _runs(frame: Any) -> bool:
    """True for a frame of this thread that has not returned."""
    running: Any = sys._getframe(1)
    while running is not None and running is not frame:
        running = running.f_back
    return running is not None


class Counts:
    """What the hooks of a model did."""

    def __init__(self) -> None:
        self.computed = self.removed = self.shared = 0
        self.ways: dict[str, None] = {}
        self.left: dict[str, None] = {}

    def add(self, rows: Rows) -> None:
        """Count the tokens of a call."""
        with _counting:
            self.computed += rows.total
            self.shared += rows.shared
            self.removed += rows.shape[0] * rows.shape[1] - rows.total - rows.shared


class Hooks:
    """The hooks of one model of transformers; models within it have their own.

    They are methods of an object that holds no model: hooks get the model that is called, so a copy of a model computes
    with its own weights.
    """

    def __init__(self, counts: Counts) -> None:
        self.counts = counts
        self.decisions: dict[Any, Decision] = {}
        self._names_change_nothing: bool | None = None
        self._may_share = {True: True, False: True}  # with labels, and without

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
        calls, mask = _calls(), None
        if calls and calls[-1].runs and calls[-1].root is not module:
            call = calls[-1]
        else:
            mask = padded_mask(arguments, module.config)
            bounded = bounded_rows(arguments, module) if mask is None else None
            if calls and not calls[-1].runs:
                call = calls[-1]
            elif bounded is not None and not self._put_hooks_in_order(module):
                call = Call(module, self._bounded_way(module, arguments, bounded), frame=sys._getframe(2))
                calls.append(call)
            else:
                way, shared = (None, None) if self._put_hooks_in_order(module) else self._way(module, arguments, mask)
                call = Call(module, way, shared=shared, frame=sys._getframe(2))
                calls.append(call)
            call.runs = True
            if mask is not None and call.way is not None and call.way.tokenwise:
                THREAD.rows_of_tokens = call.tokens = Rows.of_mask(mask)
        if (place := call.place_of(module)) is None or self._put_hooks_in_order(module):
            return None
        if not takes_rows(implementation := module.config._attn_implementation):
            return None
        if call.way is not None and call.way.bounded:
            rows = bounded_rows(arguments, module)
            THREAD.rows = rows
            call.bounded = rows is not None
            return None if rows is None else ((), rows.with_boundaries(arguments, implementation))
        mask = padded_mask(arguments, module.config) if mask is None else mask
        if mask is None:
            return None
        flat = Flat(module, mask, call, place)
        taken = flat.take_apart(arguments, implementation)
        call.flat.append(flat)
        THREAD.rows = flat.rows
        return (), taken

    def _put_hooks_in_order(self, module: Any) -> bool:
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
        calls, output = _calls(), rest[-1]
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
            if call.bounded:
                THREAD.rows = None
            if call.tokens is not None:
                THREAD.rows_of_tokens = None
                if not call.proof:
                    self.counts.add(call.tokens)
            calls.pop()
        return result

    def _way(self, module: Any, arguments: dict[str, Any], mask: Any) -> tuple[Way | None, SharedRows | None]:
        """How to compute a call: as one of its form was proven, or as is proven now; and what its rows share."""
        lockstep = Lockstep(module)
        if mask is None:
            self._accompany(module, arguments, lockstep)
            return None, None
        form, longest = form_of(module, arguments, mask)
        shared = self._shared(module, arguments, mask)
        form, width = (*form, shared is not None), mask.shape[1]
        decision = self.decisions.get(form)
        if decision is None or (decision.way is not None and (longest > decision.longest or width > decision.width)):
            with _proving:
                way = self._proven(module, arguments, mask, shared, lockstep)
            decision = self.decisions[form] = Decision(way, longest, width)
        self._accompany(module, arguments, lockstep)
        way = decision.way
        if way is not None and way.places and not takes_rows(module.config._attn_implementation):
            set_names(module)  # again, after somebody chose another implementation for a while
        if way is not None and way.tokenwise and torch.is_grad_enabled() and _computes_again(module):
            return None, None  # layers are computed again after the call, when nobody knows which tokens are real
        return way, shared

    def _bounded_way(self, module: Any, arguments: dict[str, Any], rows: BoundedRows) -> Way | None:
        """How to compute a flat batch with boundaries: as one of its form, compared with its rows padded."""
        padded, mask = rows.padded(arguments), rows.real
        if is_sharded(module):
            return None
        form, longest = form_of(module, padded, mask)
        form = (*form, "bounded")
        decision = self.decisions.get(form)
        if decision is None or (decision.way is not None and longest > decision.longest):
            with _proving:
                way = self._bounded_proven(module, rows, proof.telling_labels(padded, mask), arguments)
            decision = self.decisions[form] = Decision(way, longest, longest)
        if decision.way is not None and not takes_rows(module.config._attn_implementation):
            set_names(module)
        return decision.way

    def _bounded_proven(
        self, module: Any, rows: BoundedRows, padded: dict[str, Any], arguments: dict[str, Any]
    ) -> Way | None:
        way, flat = Way(("",), bounded=True), rows.flat(padded, arguments)
        with proof.undisturbed(module):
            try:
                expected = _result(module, padded, None)
                if not self._names_may_be_set(module, padded, Lockstep(module)):
                    raise RowsLostError("its attention cannot be told of rows")
                got = _result(module, flat, way)
            except Exception as error:  # of the call itself, or of attention that cannot be told of rows
                self._leave(module, [f"{type(error).__name__}: {error}"])
                return None
        most = proof.tolerance(module, rows.cells.device.type)
        if reason := proof.difference(expected, rows.put_all(got), rows.real, most):
            self._leave(module, [reason])
            return None
        self.counts.ways[sentence_of(module, way)] = None
        return way

    def _accompany(self, module: Any, arguments: dict[str, Any], lockstep: Lockstep) -> None:
        """Calls a model whose weights are sharded as often as other processes do for their proofs."""
        if lockstep.sharded and not has_cache(arguments):
            with proof.undisturbed(module):
                lockstep.accompany(lambda: _result(module, arguments, None))

    def _shared(self, module: Any, arguments: dict[str, Any], mask: Any) -> SharedRows | None:
        """The rows as a tree, if they share beginnings and nothing but ids and positions distinguishes their tokens."""
        names = {name for name, _ in of_tokens(arguments, mask.shape)}
        if names - {MASK, POSITIONS, LABELS} != {"input_ids"} or not self._may_share[LABELS in names]:
            return None
        positions = arguments.get(POSITIONS)
        if positions is not None and positions.dim() != 2:
            return None
        shared = shared_rows(arguments["input_ids"], mask, positions)
        return None if shared is None or drops(module) else shared

    def _proven(
        self, module: Any, arguments: dict[str, Any], mask: Any, shared: SharedRows | None, lockstep: Lockstep
    ) -> Way | None:
        """A way in which a few rows of a call come out the same; None if there is none."""
        arguments, mask = proof.some_rows(arguments, mask, shared)
        shared = None if shared is None else self._shared(module, arguments, mask)
        arguments = proof.telling_labels(arguments, mask)
        most = proof.tolerance(module, mask.device.type)
        reasons: dict[str, None] = {}
        for inner in module.modules():
            if (hooks := hooks_of(inner)) is not None:
                hooks._put_hooks_in_order(inner)
        with proof.undisturbed(module):
            try:
                # A module of a sharded model cannot be called by itself.
                with Search(module, mask, most) if not lockstep.sharded else nullcontext(None) as search:
                    expected = _result(module, arguments, None, lockstep=lockstep)
            except Exception:  # the call itself raises it
                return None
            tokenwise = () if search is None else tuple(search.names)
            for way in self._ways(module, arguments, mask, tokenwise, lockstep, shares=shared is not None):
                paths: dict[str, dict[Path, int]] = {}
                try:
                    got = _result(module, arguments, way, paths, lockstep, shared=shared)
                except Exception as error:
                    lost = isinstance(error, RowsLostError)
                    reasons[str(error) if lost else f"{type(error).__name__}: {error}"] = None
                    continue
                reason = proof.difference(expected, got, mask, most)
                if reason is None and (any(paths.values()) or way.tokenwise):
                    self._may_share[arguments.get(LABELS) is not None] &= way.shared or shared is None
                    self.counts.ways[sentence_of(module, way)] = None
                    return replace(way, paths=paths)
                reasons[reason or "nothing of it was taken apart"] = None
        self._leave(module, list(reasons))
        return None

    def _leave(self, module: Any, reasons: list[str]) -> None:
        name = type(module).__name__
        sentence = f"{name} stays as it is for batches of this form: {reasons[0]}"
        if sentence not in self.counts.left:
            self.counts.left[sentence] = None
            logger.warning("remove_padding: %s", sentence)

    def _ways(
        self,
        module: Any,
        arguments: dict[str, Any],
        mask: Any,
        tokenwise: tuple[str, ...],
        lockstep: Lockstep,
        *,
        shares: bool,
    ) -> Iterator[Way]:
        """Ways to compute a call, those first that were proven for calls of other forms."""
        known = (decision.way for decision in self.decisions.values() if decision.way is not None)
        if self._names_may_be_set(module, arguments, lockstep):
            ways = [replace(way, paths={}) for way in known if way.places]
            ways += flat_ways(module, arguments, mask)
            labelled = arguments.get(LABELS) is not None  # those of shared tokens differ from row to row
            tried = [(replace(way, shared=True), replace(way, shared=False)) for way in ways]
            yield from dict.fromkeys(
                way
                for pair in tried
                for way in pair
                if not way.shared or (shares and (way.places, labelled) != (("",), True))
            )
            if not any(decision.way and decision.way.places for decision in self.decisions.values()):
                restore_names(module)
        if tokenwise:
            for name in tokenwise:
                add_token_hooks(module.get_submodule(name))
            yield Way((), tokenwise=tokenwise)

    def _names_may_be_set(self, module: Any, arguments: dict[str, Any], lockstep: Lockstep) -> bool:
        """Sets the names of attention functions, unless the model computes something else under other names."""
        if self._names_change_nothing is None:
            calls = [arguments, {**arguments, MASK: torch.ones_like(arguments[MASK])}]
            before = [_result(module, call, None, lockstep=lockstep) for call in calls]
            set_names(module)
            try:
                after = [_result(module, call, None, lockstep=lockstep) for call in calls]
                self._names_change_nothing = all(map(proof.identical, before, after))
            except Exception:
                self._names_change_nothing = False
        if self._names_change_nothing:
            set_names(module)
        else:
            restore_names(module)
        return self._names_change_nothing


def _computes_again(module: Any) -> bool:
    """True for a model that checkpoints its layers."""
    return any(getattr(inner, "gradient_checkpointing", False) for inner in module.modules())


def hooks_of(module: Any) -> Hooks | None:
    """The hooks of a model that `remove_padding` was told of."""
    owners = (getattr(hook, "__self__", None) for hook in module._forward_pre_hooks.values())
    return next((owner for owner in owners if isinstance(owner, Hooks)), None)


def _result(
    module: Any,
    arguments: dict[str, Any],
    way: Way | None,
    paths: dict[str, dict[Path, int]] | None = None,
    lockstep: Lockstep | None = None,
    *,
    shared: SharedRows | None = None,
) -> Any:
    """What a model gives in one way."""
    calls = _calls()
    before, call = calls[:], Call(module, way, proof=True, shared=shared)
    calls[:] = [call]
    try:
        return module(**arguments) if lockstep is None else lockstep.call(lambda: module(**arguments))
    finally:
        calls[:] = before
        THREAD.rows = THREAD.rows_of_tokens = None
        if paths is not None:
            paths |= call.paths
