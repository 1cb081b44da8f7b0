"""How the calls of a model are computed: as was proven for the first one of their form, or as they are."""

from __future__ import annotations

import functools
import logging
import operator
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import torch

from quadrat.model import proof
from quadrat.model.arguments import LABELS, MASK, POSITIONS, has_cache, of_tokens
from quadrat.model.attention import RowsLostError, restore_names, set_names, takes_rows
from quadrat.model.boundaries import BoundedRows
from quadrat.model.calls import Call, Counts, result_of
from quadrat.model.prefixes import SharedRows, drops, shared_rows
from quadrat.model.proof import Lockstep
from quadrat.model.tokenwise import Search, add_token_hooks
from quadrat.model.ways import Way, flat_ways, form_of, sentence_of
from quadrat.support.locks import new_lock

logger = logging.getLogger("quadrat")
_proving = new_lock()


class Decisions:
    """The decisions about one model. They hold no model: a copy of a model may use them.

    Args:
        counts: gets a sentence for each way that was proven, and for calls that stay as they are.
        prepare: called with a model before it is proven.
    """

    def __init__(self, counts: Counts, prepare: Callable[[Any], None]) -> None:
        self._counts, self._prepare = counts, prepare
        self._of_forms: dict[Any, tuple[Way | None, tuple[int, ...]]] = {}  # ways, proven up to sizes
        self._names_change_nothing: bool | None = None
        self._may_share = {True: True, False: True}  # with labels, and without

    def way(
        self, module: Any, arguments: dict[str, Any], mask: Any, bounded: BoundedRows | None
    ) -> tuple[Way | None, SharedRows | None]:
        """How to compute a call, as one of its form was proven or as is proven now; and what its rows share.

        mask: of a batch with padding that can be removed. bounded: the rows of a flat batch with boundaries.
        """
        lockstep, way, shared = Lockstep(module), None, None
        if mask is not None:
            form, sizes = form_of(module, arguments, mask)
            shared = self._shared(module, arguments, mask)
            prove = functools.partial(self._proven, module, arguments, mask, shared, lockstep)
            way = self._decided((*form, shared is not None), sizes, prove)
        elif bounded is not None and not lockstep.sharded:
            padded = bounded.padded(arguments)
            form, sizes = form_of(module, padded, bounded.real)
            prove = functools.partial(self._proven_bounded, module, bounded, padded, arguments)
            way = self._decided((*form, "bounded"), sizes, prove)
        if lockstep.sharded and not has_cache(arguments):  # call as often as other processes do for their proofs
            with proof.undisturbed(module):
                lockstep.accompany(lambda: result_of(Call(module), arguments))
        if way is not None and way.places and not takes_rows(module.config._attn_implementation):
            set_names(module)  # again, after somebody chose another implementation for a while
        computed_again = (getattr(inner, "gradient_checkpointing", False) for inner in module.modules())
        if way is not None and way.tokenwise and torch.is_grad_enabled() and any(computed_again):
            return None, None  # layers are computed again after the call, when nobody knows which tokens are real
        return way, shared

    def _decided(self, form: Any, sizes: tuple[int, ...], prove: Callable[[], Way | None]) -> Way | None:
        way, proven = self._of_forms.get(form, (None, None))
        if proven is None or (way is not None and any(map(operator.gt, sizes, proven))):
            before = way
            with _proving:
                way = prove()
            sizes = tuple(map(max, sizes, proven)) if proven is not None and way == before else sizes
            self._of_forms[form] = way, sizes
        return way

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
        self._prepare(module)
        with proof.undisturbed(module):
            try:
                # A module of a sharded model cannot be called by itself.
                most = proof.tolerance(module, mask.device.type)
                with Search(module, mask, most) if not lockstep.sharded else nullcontext(None) as search:
                    telling = proof.telling_calls(arguments, mask)
                    expected = [(call, result_of(Call(module), call, lockstep)) for call in telling]
            except Exception:  # the call itself raises it
                return None
            ways = self._ways(module, arguments, mask, search, lockstep, shares=shared is not None)
            calls = (Call(module, way, shared) for way in ways)
            way = self._same(module, expected, mask, calls, functools.partial(result_of, lockstep=lockstep))
        if way is not None:
            self._may_share[arguments.get(LABELS) is not None] &= way.shared or shared is None
        return way

    def _proven_bounded(
        self, module: Any, rows: BoundedRows, padded: dict[str, Any], arguments: dict[str, Any]
    ) -> Way | None:
        """The way of a flat batch whose rows come out as those of a padded one; None if they do not."""
        with proof.undisturbed(module):
            try:
                telling = proof.telling_calls(padded, rows.real)
                expected = [(rows.flat(call, arguments), result_of(Call(module), call)) for call in telling]
            except Exception as error:  # the call itself may raise nothing
                self._leave(module, f"{type(error).__name__}: {error}")
                return None
            may_be_told = self._names_may_be_set(module, padded, Lockstep(module))
            calls = [Call(module, Way(("",), bounded=True))] if may_be_told else []
            return self._same(module, expected, rows.real, calls, lambda *call: rows.put_all(result_of(*call)))

    def _same(
        self, module: Any, expected: list[Any], mask: Any, calls: Iterable[Call], compute: Callable[..., Any]
    ) -> Way | None:
        """The way of the first call whose real tokens come out as expected; None, with a reason, if there is none.

        expected: arguments, and the output with padding. compute: gives the output of a call with arguments.
        """
        most = proof.tolerance(module, mask.device.type)
        reasons: dict[str, None] = {}
        for call in calls:
            try:
                differences = (
                    proof.difference(output, compute(call, arguments), arguments, mask, most)
                    for arguments, output in expected
                )
                reason = next(filter(None, differences), None)
            except Exception as error:
                lost = isinstance(error, RowsLostError)
                reasons[str(error) if lost else f"{type(error).__name__}: {error}"] = None
                continue
            way = replace(call.way or Way(()), paths=call.paths)
            if reason is None and (any(way.paths.values()) or way.tokenwise or way.bounded):
                self._counts.ways[sentence_of(module, way)] = None
                return way
            reasons[reason or "nothing of it was taken apart"] = None
        self._leave(module, next(iter(reasons), "its attention cannot be told of rows"))
        return None

    def _leave(self, module: Any, reason: str) -> None:
        sentence = f"{type(module).__name__} stays as it is for batches of this form: {reason}"
        if sentence not in self._counts.left:
            self._counts.left[sentence] = None
            logger.warning("remove_padding: %s", sentence)

    def _ways(
        self,
        module: Any,
        arguments: dict[str, Any],
        mask: Any,
        search: Search | None,
        lockstep: Lockstep,
        *,
        shares: bool,
    ) -> Iterator[Way]:
        """Ways to compute a call with padding, those first that were proven for calls of other forms."""
        if self._names_may_be_set(module, arguments, lockstep):
            known = [way for way, _ in self._of_forms.values() if way is not None]
            ways = [replace(way, paths={}, shared=False) for way in known if way.places and not way.bounded]
            labelled = arguments.get(LABELS) is not None  # those of shared tokens differ from row to row
            for way in dict.fromkeys([*ways, *flat_ways(module, arguments, mask)]):
                if shares and not (labelled and way.places == ("",)):
                    yield replace(way, shared=True)
                yield way
            if not any(way.places for way in known):
                restore_names(module)
        if search is not None and (tokenwise := search.names()):
            for name in tokenwise:
                add_token_hooks(module.get_submodule(name))
            yield Way((), tokenwise=tokenwise)

    def _names_may_be_set(self, module: Any, arguments: dict[str, Any], lockstep: Lockstep) -> bool:
        """Sets the names of attention functions, unless the model computes something else under other names."""
        if self._names_change_nothing is None:
            calls = [arguments, {**arguments, MASK: torch.ones_like(arguments[MASK])}]
            before = [result_of(Call(module), call, lockstep) for call in calls]
            set_names(module)
            try:
                after = [result_of(Call(module), call, lockstep) for call in calls]
                self._names_change_nothing = all(map(proof.identical, before, after))
            except Exception:
                self._names_change_nothing = False
        (set_names if self._names_change_nothing else restore_names)(module)
        return self._names_change_nothing
