"""Tensors that torch records, and tensors without memory: no constants in a recording, nothing is read at address 0."""

import functools
import json
import os
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._python_dispatch import TorchDispatchMode

import quadrat
from support import isolated, memoryless

HIDDEN = torch.randn(2, 3, 2)
MASK = torch.tensor([[1, 1, 0], [0, 1, 0]])
FLAT = HIDDEN.reshape(6, 2)
OFFSETS = torch.tensor([0, 2, 6])
LENGTHS = torch.tensor([1, 3])
BOUNDS = OFFSETS.numpy()
RAGGED = (FLAT, OFFSETS)
align = quadrat.align

# What is called, and with what.
CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "unpad by mask": (lambda hidden, mask: quadrat.unpad(hidden, mask=mask).values, (HIDDEN, MASK)),
    "unpad by lengths": (lambda hidden, lengths: quadrat.unpad(hidden, lengths=lengths).values, (HIDDEN, LENGTHS)),
    "unpad to a total": (
        lambda hidden, lengths: quadrat.unpad(hidden, lengths=lengths, total=4).values,
        (HIDDEN, LENGTHS),
    ),
    "pad": (lambda *arrays: quadrat.pad(quadrat.Ragged(*arrays)), RAGGED),
    "pad to a length": (lambda *arrays: quadrat.pad(quadrat.Ragged(*arrays), max_length=5), RAGGED),
    "pad a list": (lambda *rows: quadrat.pad(list(rows)), (FLAT[0], FLAT[1])),
    "flatten": (lambda *arrays: quadrat.flatten(quadrat.Ragged(*arrays)).values, RAGGED),
    "align": (lambda values, offsets: align(offsets, values, pad_to_multiple_of=4).values[0], RAGGED),
    "align by an array": (lambda values: align(BOUNDS, values, pad_to_multiple_of=4).values[0], (FLAT,)),
    "concat_padded": (lambda *parts: quadrat.evaluation.concat_padded(parts), (MASK, MASK[:, :2])),
    "default_data_collator": (
        lambda *rows: quadrat.default_data_collator([{"x": row} for row in rows])["x"],
        (FLAT[0], FLAT[1]),
    ),
}


def other(argument: Any) -> Any:
    """Another argument of the same shape, for what was recorded."""
    if argument is OFFSETS:
        return torch.tensor([0, 4, 6])
    return argument + 1 if argument.is_floating_point() else argument.flip(-1)


RECORDS = {
    "make_fx": lambda function, arguments: make_fx(function)(*arguments),
    "symbols": lambda function, arguments: make_fx(function, tracing_mode="symbolic")(*arguments),
    "jit": functools.partial(torch.jit.trace, check_trace=False),
}


@pytest.mark.filterwarnings("ignore")  # what torch says of its own jit
@pytest.mark.parametrize("record", RECORDS.values(), ids=RECORDS)
@pytest.mark.parametrize("name", CASES)
def test_what_was_recorded_follows_its_arguments_or_is_refused(record: Any, name: str) -> None:
    function, arguments = CASES[name]
    function(*arguments)  # so that a collator knows the kind of batch
    try:
        recorded = record(function, arguments)
    except RuntimeError as error:
        assert "torch records what is done" in str(error) or "tracing tensor" in str(error)  # noqa: PT017
        return
    others = [other(argument) for argument in arguments]
    assert torch.equal(recorded(*others), function(*others))
    assert not torch.equal(function(*others), function(*arguments))


class _Recorder(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(str(function))
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("name", CASES)
def test_a_mode_sees_what_is_done(name: str) -> None:
    function, arguments = CASES[name]
    expected = function(*arguments)
    with _Recorder() as seen:
        try:
            output = function(*arguments)
        except RuntimeError as error:
            assert "torch records what is done" in str(error)  # noqa: PT017
            return
    assert torch.equal(output, expected)
    assert seen.names


forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="calls that may end the process run in children")
REFUSAL = re.compile(
    r"raised TypeError: \w[\w ]* must be a dense tensor with its numbers in memory, not an? "
    r"|raised ValueError: \w[\w ]* must be on the CPU or a GPU, not on meta"
    r"|raised ValueError: values are on \w+, offsets on \w+; both must be on the CPU or on one GPU"
    r"|raised ValueError: \w+ (is|are) on meta; (it|they) must be on the CPU"
    r"|raised TypeError: row [01] is the \w+ of torch\.\w+ on \w+: each row must be "
)


@pytest.fixture(scope="module")
def outcomes():
    return json.loads(isolated.python("-m", "support.memoryless").splitlines()[-1])


@pytest.mark.slow
@forks
@pytest.mark.parametrize("call", memoryless.CALLS)
def test_functions_refuse_them(outcomes, call):
    for kind in memoryless.MAKERS:
        assert REFUSAL.match(outcomes[call][kind]), f"{kind}: {outcomes[call][kind]}"


@pytest.mark.slow
@forks
@pytest.mark.parametrize("call", memoryless.OF_TORCH)
def test_what_torch_does_keeps_its_meaning_and_errors(outcomes, call):
    for kind in memoryless.MAKERS.keys() - {"emptied"}:
        told = outcomes[call][kind]
        if kind in memoryless.MEANINGS and told.startswith("gave"):
            assert told == outcomes[call][f"{kind} meant"], kind
        else:
            assert re.match("raised |gave (Fake)?Tensor$", told), f"{kind}: {told}"


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors|torch.quantize_per_tensor")
@pytest.mark.parametrize("kind", memoryless.MAKERS)
def test_a_deferred_batch_keeps_them(kind):
    tensor = memoryless.MAKERS[kind](memoryless.PADDED)
    assert quadrat.deferred.DeferredBatch({"input_ids": tensor}).to("cpu")["input_ids"] is tensor
