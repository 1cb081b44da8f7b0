"""A `Ragged` whose arrays were changed after it was made does what one made anew of them does, or refuses.

Run as a script: it ends by a signal where a function reads or writes outside of the values.
"""

import pickle
import warnings
from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st
import numpy as np
import torch
from hypothesis import given, settings

import quadrat
from quadrat import Ragged

_MASKING: dict[str, Any] = {"mask_token_id": 3, "vocab_size": 99, "mlm_probability": 0.5}
_OFFSET = st.integers(-2, 12) | st.sampled_from([2**40, -(2**40), 2**62, -(2**63), 2**63 - 1])


def _seeded(rows: Ragged) -> Any:
    generator = torch.Generator() if isinstance(rows.values, torch.Tensor) else np.random.default_rng(0)
    return quadrat.mask_tokens(rows, generator=generator, **_MASKING)


CALLS: dict[str, Callable[[Ragged], Any]] = {
    "pad": quadrat.pad,
    "to_padded": lambda rows: rows.to_padded(padding_side="left"),
    "flatten": quadrat.flatten,
    "attention_mask": quadrat.attention_mask,
    "mask_tokens": _seeded,
    "by counter": lambda rows: quadrat.mask_tokens(rows, rng="philox", **_MASKING),
    "special": lambda rows: quadrat.mask_tokens(rows, special_tokens_mask=rows, rng="philox", **_MASKING),
    "take": lambda rows: rows[list(range(len(rows)))[::-1]],
    "reversed": lambda rows: rows[::-1],
    "slice": lambda rows: rows[:],
    "to_lists": Ragged.to_lists,
    "to_arrow": lambda rows: rows.to_arrow().to_pylist(),
    "to_nested": lambda rows: [row.tolist() for row in rows.to_nested().unbind()],
    "to": lambda rows: rows.to("cpu"),
    "lengths": lambda rows: rows.lengths,
    "facts": lambda rows: rows.facts,
    "iteration": list,
    "pickle": lambda rows: pickle.loads(pickle.dumps(rows)),
    "collator": lambda rows: quadrat.DataCollatorWithFlattening()({"input_ids": rows}),
}


def _told(call: Callable[[], Any]) -> Any:
    def plain(value: Any) -> Any:
        if isinstance(value, Ragged):
            return value.to_lists()
        if isinstance(value, dict):
            return {name: plain(part) for name, part in value.items()}
        if isinstance(value, (list, tuple)):
            return [plain(part) for part in value]
        return value.tolist() if isinstance(value, (np.ndarray, torch.Tensor)) else value

    try:
        return plain(call())
    except ValueError:
        return ValueError


def _resize(values: Any, size: int) -> None:
    if isinstance(values, torch.Tensor):
        values.resize_(size)
        values[:] = torch.arange(size)
    else:
        values.resize(size, refcheck=False)
        values[:] = np.arange(size)


@settings(max_examples=150, deadline=None, derandomize=True, database=None)
@given(
    lengths=st.lists(st.integers(0, 4), min_size=1, max_size=5),
    torch_values=st.booleans(),
    changes=st.lists(st.tuples(st.integers(0, 5), _OFFSET), max_size=3),
    size=st.none() | st.integers(0, 20),
)
def check(lengths: list[int], torch_values: bool, changes: list[tuple[int, int]], size: int | None) -> None:
    """One change and all functions."""
    bounds = np.cumsum([0, *lengths])
    values = np.arange(bounds[-1])
    held = torch.arange(len(values)) if torch_values else values
    rows = Ragged(held, torch.from_numpy(bounds) if torch_values else bounds)
    assert rows.facts.last == bounds[-1]  # whatever is kept of the offsets is kept now
    for place, offset in changes:
        bounds[place % len(bounds)] = offset
    if size is not None:
        _resize(held, size)
    for name, call in CALLS.items():
        try:
            anew = Ragged(held.clone(), rows.offsets.clone()) if torch_values else Ragged(held.copy(), bounds.copy())
        except ValueError:
            expected: Any = ValueError
        else:
            expected = _told(lambda call=call, anew=anew: call(anew))
        got = _told(lambda call=call: call(rows))
        if name == "iteration" and expected is ValueError:
            continue  # rows before the first that is damaged are given
        assert got == expected, f"{name}: {got}, where {expected} was expected"


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    check()
