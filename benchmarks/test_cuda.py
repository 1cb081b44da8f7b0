"""The CUDA kernels: how near to a copy they come, and beside what torch has for the same."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pytest
import torch

import quadrat
from benchmarks.jobs import Call, Job, report, reported, same, synchronised, timed
from quadrat.ops import _device
from quadrat.ops._philox import PhiloxOptions
from quadrat.support.gpu import PadColumn, launch, pad_columns
from quadrat.support.memory import address_of

pytestmark = [pytest.mark.cuda, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")]
MIB = 1 << 20


def between_events(call: Call, calls: int, launches: int = 1) -> None:
    """Report the time on the GPU of each launch of so many calls, from an event before them to one after."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(calls):
        call()
    end.record()
    end.synchronize()
    report(float(begin.elapsed_time(end)) / 1e3 / calls / launches)


def in_a_row(call: Call) -> Call:
    """Times a call among others that keep the GPU busy while the CPU launches the next."""
    return partial(between_events, call, 10)


def captured(call: Call, calls: int = 10) -> Call:
    """Times a call within a CUDA graph, without the CPU's part; what waits for the GPU cannot be captured."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph):
            for _ in range(calls):
                call()
    except RuntimeError as error:
        torch.cuda.synchronize()
        pytest.skip(f"no CUDA graph: {error}")
    return partial(between_events, graph.replay, 1, calls)


def bandwidth(call: Call, bytes_moved: int, right: Callable[[Any], bool]) -> Job:
    """A kernel beside torch's copy within the GPU, by the bytes that must be read and those that must be written.

    `right` says whether the result is.
    """
    source = torch.randint(0, 256, (bytes_moved // 2,), dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)

    def check() -> None:
        assert right(call()), "wrong result"

    ways = {"copy": in_a_row(lambda: target.copy_(source)), "quadrat": in_a_row(call)}
    return Job(ways, {"part": "bandwidth", "bytes": bytes_moved}, check=check)


@dataclass
class Batch:
    """Rows of random lengths on the GPU, a share of the width on average."""

    rows: int
    width: int
    dtype: torch.dtype
    share: float = 0.75
    trailing: tuple[int, ...] = ()
    side: str = "right"
    ragged: quadrat.Ragged = field(init=False)
    padded: torch.Tensor = field(init=False)

    def __post_init__(self) -> None:
        generator = torch.Generator().manual_seed(0)
        low = round(self.width * (2 * self.share - 1))
        lengths = torch.randint(low, self.width + 1, (self.rows,), generator=generator)
        lengths[0] = self.width
        total = int(lengths.sum())
        values = torch.randint(0, 100, (total, *self.trailing), device="cuda", dtype=torch.uint8).to(self.dtype)
        self.ragged, self.bytes = quadrat.Ragged.of_lengths(values, lengths.numpy()), values.nbytes
        self.left = self.side == "left"
        self.padded = quadrat.pad(self.ragged, max_length=self.width, padding_side=self.side)

    def column(self, *, mask: bool = False) -> tuple[PadColumn, torch.Tensor]:
        """A column for a launch, and the output that it writes: the rows, or their attention mask."""
        out, values = torch.empty_like(self.padded), None if mask else self.ragged.values
        return _device.column_of(out, values, self.ragged.offsets, left=self.left), out

    def mask(self) -> torch.Tensor:
        places, lengths = torch.arange(self.width, device="cuda"), self.ragged.lengths[:, None]
        return places >= self.width - lengths if self.left else places < lengths


def pad(*of: Any, masks: tuple[bool, ...] = (False,)) -> Job:
    """One launch that writes a column for each of `masks`: the rows, or their attention mask."""
    batch = Batch(*of)
    columns, outs = zip(*(batch.column(mask=mask) for mask in masks), strict=True)
    bytes_moved = masks.count(False) * batch.bytes + len(masks) * batch.padded.nbytes

    def right(_: Any) -> bool:
        by_hand = torch.zeros_like(batch.padded)
        by_hand[batch.mask()] = batch.ragged.values
        expected = {False: by_hand, True: batch.mask().to(batch.dtype)}
        return all(torch.equal(out, expected[mask]) for out, mask in zip(outs, masks, strict=True))

    return bandwidth(lambda: pad_columns(columns, batch.rows, outs[0].device), bytes_moved, right)


def unpad(*of: Any) -> Job:
    batch = Batch(*of)
    return bandwidth(
        lambda: _device.unpad(batch.padded, batch.ragged.offsets, len(batch.ragged.values), left=batch.left),
        2 * batch.bytes,
        lambda values: torch.equal(values, batch.padded[batch.mask()]),
    )


def flatten(*of: Any) -> Job:
    batch = Batch(*of)
    values, offsets, total = batch.ragged.values, batch.ragged.offsets, len(batch.ragged.values)

    def right(outputs: Any) -> bool:
        row = torch.repeat_interleave(torch.arange(batch.rows, device="cuda"), batch.ragged.lengths)
        expected = values, torch.arange(total, device="cuda") - offsets[row], row.int(), offsets.int()
        return all(torch.equal(mine, other) for mine, other in zip(outputs, expected, strict=True))

    flat = partial(_device.flatten, values, offsets, total, start=0, padding_value=0)
    return bandwidth(flat, 2 * batch.bytes + total * 12, right)


def other_way(name: str, batch: Batch) -> Call:
    """One of torch's to the padded batch, or back."""
    values, offsets, padded = batch.ragged.values, batch.ragged.offsets, batch.padded
    if name == "torch.nested.to_padded_tensor":
        jagged = torch.nested.nested_tensor_from_jagged(values, offsets, max_seqlen=batch.width)
        return lambda: torch.nested.to_padded_tensor(jagged, 0, tuple(padded.shape))
    if name == "aten::_jagged_to_padded_dense_forward":
        dense = values if values.dim() > 1 else values[:, None]
        return lambda: torch.ops.aten._jagged_to_padded_dense_forward(dense, [offsets], [batch.width], 0.0)
    if name == "torch.nn.utils.rnn.pad_sequence":
        rows = list(batch.ragged)
        return lambda: torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
    mask = batch.mask()
    if name == "padded[mask]":
        return lambda: padded[mask]
    flat, places = padded.flatten(0, 1), mask.flatten().nonzero().flatten()
    return lambda: flat.index_select(0, places)


PADS = ("torch.nested.to_padded_tensor", "aten::_jagged_to_padded_dense_forward", "torch.nn.utils.rnn.pad_sequence")
UNPADS = ("padded[mask]", "index_select, places known")


def compared(function: str, name: str, other: str, of: tuple[Any, ...]) -> Job:
    """quadrat's function beside one of torch's."""
    batch = Batch(*of)
    rows, lengths, total = batch.ragged, batch.ragged.lengths, len(batch.ragged.values)
    ours: Call = {
        "pad": lambda: quadrat.pad(rows, max_length=batch.width),
        "unpad": lambda: quadrat.unpad(batch.padded, lengths=lengths, total=total).values,
    }[function]
    call = other_way(other, batch)

    def check() -> None:
        expected = ours()
        same(expected, call().reshape(expected.shape))

    facts = {"part": "compare", "of": f"{function}, {name}", "other": other}
    return Job({"torch": call, "quadrat": ours}, facts, check=check)


def masked() -> Job:
    """Masked language modelling, padding and the attention mask together, beside padding and the mask alone."""
    batch = Batch(rows_of(512, 512, 8), 512, torch.int64)
    lengths = batch.ragged.lengths
    columns, (ids, labels, mask) = zip(batch.column(), batch.column(), batch.column(mask=True), strict=True)
    keys = torch.arange(batch.rows, device="cuda")
    special = torch.tensor([1 << 0 | 1 << 7], device="cuda")
    column = columns[0]
    options = PhiloxOptions(7, 0, 0.15, 0.8, 0.1, 103, 30522)
    rows = column.offsets, batch.rows, column.width, column.left, False, 0, address_of(special), 1
    outputs = column.out, address_of(labels), ids.numel(), True, column.values, column.values_size, 0, address_of(mask)

    def one_by_one() -> Any:
        pad_columns([columns[0], columns[2]], batch.rows, ids.device)
        drawn = {"rng": "philox", "seed": 7, "row_keys": keys, "lengths": lengths}
        return quadrat.mask_tokens(ids, mask_token_id=103, vocab_size=30522, special_ids=[0, 7], **drawn)

    def together() -> None:
        launch("philox_mask", ids.device, options, address_of(keys), *rows, *outputs)

    def check() -> None:
        expected = one_by_one()
        together()
        assert torch.equal(ids, expected[0])
        assert torch.equal(labels, expected[1])
        assert torch.equal(mask, batch.mask().long())

    alone = partial(pad_columns, columns, batch.rows, ids.device)
    ways = {"pad": in_a_row(alone), "masked": in_a_row(together), "one by one": in_a_row(one_by_one)}
    return Job(ways, {"part": "masked"}, base="pad", check=check)


def rows_of(mib: int, width: int, item: int) -> int:
    return mib * MIB // (width * item)


INT64, WIDE = torch.int64, (0.75, (768,))
USUAL = rows_of(512, 512, 8), 512, INT64
SHAPES: dict[str, tuple[Any, ...]] = {}
for mib in (256, 1024):
    SHAPES[f"int64, {mib} MiB"] = rows_of(mib, 512, 8), 512, INT64
    SHAPES[f"bfloat16 [768], {mib} MiB"] = rows_of(mib, 512, 1536), 512, torch.bfloat16, *WIDE
SHAPES |= {
    "int64, half full, 1 GiB": (rows_of(1024, 512, 8), 512, INT64, 0.5),
    "int64, 487 wide, left, 1 GiB": (rows_of(1024, 487, 8), 487, INT64, 0.75, (), "left"),
    "int32, 1 GiB": (rows_of(1024, 512, 4), 512, torch.int32),
    "uint8, 512 MiB": (rows_of(512, 512, 1), 512, torch.uint8),
}
COPIES = {f"{job.__name__}, {name}": partial(job, *of) for name, of in SHAPES.items() for job in (pad, unpad)} | {
    "pad, int64, 24 wide, 512 MiB": partial(pad, rows_of(512, 24, 8), 24, INT64),
    "attention_mask, int64": partial(pad, *USUAL, masks=(True,)),
    "pad ids, labels and mask at once, int64": partial(pad, *USUAL, masks=(False, False, True)),
    "flatten, int64, with positions and seq_idx": partial(flatten, *USUAL),
}
BATCHES: dict[str, tuple[Any, ...]] = {
    "64 x 512, int64": (64, 512, INT64),
    "64 x 512 x 768, bfloat16": (64, 512, torch.bfloat16, *WIDE),
    "65536 x 512, int64": (65536, 512, INT64),
    "256 x 512 x 768, float32": (256, 512, torch.float32, *WIDE),
}
COMPARED = {
    f"{function}, {name}: {other}": partial(compared, function, name, other, of)
    for name, of in BATCHES.items()
    for function, others in (("pad", PADS), ("unpad", UNPADS))
    for other in others
    if of[0] <= 1024 or other != PADS[-1]
}
MASKED = {"ids, labels and attention mask, int64, 512 MiB each": masked}


def in_a_graph(make: Callable[[], Job]) -> Job:
    job = make()
    return replace(job, ways={name: captured(call) for name, call in job.ways.items()})


GRAPHS = {name: partial(in_a_graph, make) for name, make in COMPARED.items()}
test_bandwidth = timed(COPIES, ("copy", "quadrat"), timer=reported, least=15)
test_masked = timed(MASKED, ("pad", "masked", "one by one"), timer=reported, least=15)
# The time from call to call where nothing else is done, the CPU's part included.
test_single_calls = timed(COMPARED, ("torch", "quadrat"), timer=synchronised, least=500)
test_in_a_graph = timed(GRAPHS, ("torch", "quadrat"), timer=reported, least=15, said_as="graph_ns")
