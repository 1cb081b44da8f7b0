"""Time the CUDA kernels on a GPU: how near to a copy they come, and beside what torch has for the same.

Every result is checked before it is timed. `--out DIR` gets the numbers as JSON, as Markdown and as a picture.

Bandwidth counts the bytes that must be read and those that must be written. The copy it is compared with is torch's,
within the device, of as many bytes, measured before and after. Of either, ten are queued at a time, so that launches
from the CPU are no part of the time.
"""

import argparse
import json
import statistics
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from rich.console import Console

import quadrat
from cuda_report import machine, markdown, plot, rounded
from quadrat.ops import _device
from quadrat.ops._philox import PhiloxOptions
from quadrat.support.gpu import PadColumn, launch, pad_columns
from quadrat.support.memory import address_of

RESULTS = Path(__file__).parent / "results"
MIB = 1 << 20

Call = Callable[[], Any]


def microseconds(call: Call, repeats: int = 25) -> float:
    """The median time a call takes on the GPU, from an event before it to one after."""
    for _ in range(3):
        call()
    times = []
    for _ in range(repeats):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        call()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1e3)
    return statistics.median(times)


def microseconds_in_a_row(call: Call, calls: int = 10) -> float:
    """The median time of a call among others that keep the GPU busy while the CPU launches the next."""

    def several() -> None:
        for _ in range(calls):
            call()

    return microseconds(several, 15) / calls


def microseconds_in_a_graph(call: Call, calls: int = 10) -> float:
    """The same without launches from the CPU: for work that is shorter than those."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(calls):
            call()
    return microseconds(graph.replay) / calls


def microseconds_of_calls(call: Call, calls: int = 200) -> float:
    """The time from call to call where nothing else is done, the CPU's part included; the median of ten loops."""
    for _ in range(10):
        call()
    times = []
    for _ in range(10):
        torch.cuda.synchronize()
        begin = perf_counter()
        for _ in range(calls):
            call()
        torch.cuda.synchronize()
        times.append((perf_counter() - begin) / calls * 1e6)
    return statistics.median(times)


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
        self.ragged = quadrat.Ragged.of_lengths(values, lengths.numpy())
        self.padded = quadrat.pad(self.ragged, max_length=self.width, padding_side=self.side)

    @property
    def left(self) -> bool:
        return self.side == "left"

    @property
    def bytes(self) -> int:
        return self.ragged.values.nbytes

    def column(self, *, mask: bool = False) -> tuple[PadColumn, torch.Tensor]:
        """A column for a launch, and the output that it writes: the rows, or their attention mask."""
        out, values = torch.empty_like(self.padded), None if mask else self.ragged.values
        return _device.column_of(values, self.ragged.offsets, self.width, left=self.left, fill=0, out=out), out

    def padded_by_hand(self) -> torch.Tensor:
        """The padded batch by plain indexing."""
        mask = self.mask()
        out = torch.zeros_like(self.padded)
        out[mask] = self.ragged.values
        return out

    def mask(self) -> torch.Tensor:
        places, lengths = torch.arange(self.width, device="cuda"), self.ragged.lengths[:, None]
        return places >= self.width - lengths if self.left else places < lengths


@dataclass
class Work:
    """One call, the bytes it has to move, and what it must give."""

    name: str
    call: Call
    bytes: int
    check: Callable[[], bool]


def rows_of(mib: int, width: int, item: int) -> int:
    return mib * MIB // (width * item)


def pad_work(name: str, batch: Batch) -> Work:
    column, out = batch.column()
    return Work(
        f"pad, {name}",
        lambda: pad_columns([column], batch.rows, out.device),
        batch.bytes + batch.padded.nbytes,
        lambda: torch.equal(out, batch.padded_by_hand()),
    )


def unpad_work(name: str, batch: Batch) -> Work:
    return Work(
        f"unpad, {name}",
        lambda: _device.unpad(batch.padded, batch.ragged.offsets, len(batch.ragged.values), left=batch.left),
        2 * batch.bytes,
        lambda: torch.equal(
            _device.unpad(batch.padded, batch.ragged.offsets, len(batch.ragged.values), left=batch.left),
            batch.padded[batch.mask()],
        ),
    )


def batch_work(batch: Batch) -> Work:
    """What a language model's collator gives: ids, labels and the attention mask, one launch."""
    columns, outs = zip(batch.column(), batch.column(), batch.column(mask=True), strict=True)
    padded = batch.padded.nbytes
    return Work(
        "pad ids, labels and mask at once, int64",
        lambda: pad_columns(columns, batch.rows, outs[0].device),
        2 * batch.bytes + 3 * padded,
        lambda: torch.equal(outs[1], batch.padded_by_hand()) and torch.equal(outs[2], batch.mask().long()),
    )


def mask_work(batch: Batch) -> Work:
    column, out = batch.column(mask=True)
    return Work(
        "attention_mask, int64",
        lambda: pad_columns([column], batch.rows, out.device),
        batch.padded.nbytes,
        lambda: torch.equal(out, batch.mask().long()),
    )


def flatten_work(batch: Batch) -> Work:
    values, offsets, total = batch.ragged.values, batch.ragged.offsets, len(batch.ragged.values)

    def flat() -> tuple[torch.Tensor, ...]:
        return _device.flatten(values, offsets, total, start=0, padding_value=0)

    def right() -> bool:
        row = torch.repeat_interleave(torch.arange(batch.rows, device="cuda"), batch.ragged.lengths)
        expected = values, torch.arange(total, device="cuda") - offsets[row], row.int(), offsets.int()
        return all(torch.equal(mine, other) for mine, other in zip(flat(), expected, strict=True))

    return Work("flatten, int64, with positions and seq_idx", flat, 2 * batch.bytes + total * 12, right)


def bandwidth() -> list[dict[str, Any]]:
    """Each kernel beside a copy of as many bytes."""
    int64, int32, bfloat16, uint8 = torch.int64, torch.int32, torch.bfloat16, torch.uint8
    works: list[Callable[[], Work]] = []
    for mib in (256, 1024):
        rows = rows_of(mib, 512, 8)
        works += [
            lambda mib=mib, rows=rows: pad_work(f"int64, {mib} MiB", Batch(rows, 512, int64)),
            lambda mib=mib, rows=rows: unpad_work(f"int64, {mib} MiB", Batch(rows, 512, int64)),
        ]
        rows = rows_of(mib, 512, 1536)
        works += [
            lambda mib=mib, rows=rows: pad_work(f"bfloat16 [768], {mib} MiB", Batch(rows, 512, bfloat16, 0.75, (768,))),
            lambda mib=mib, rows=rows: unpad_work(
                f"bfloat16 [768], {mib} MiB", Batch(rows, 512, bfloat16, 0.75, (768,))
            ),
        ]
    odd = rows_of(1024, 487, 8)
    works += [
        lambda: pad_work("int64, half full, 1 GiB", Batch(rows_of(1024, 512, 8), 512, int64, 0.5)),
        lambda: unpad_work("int64, half full, 1 GiB", Batch(rows_of(1024, 512, 8), 512, int64, 0.5)),
        lambda: pad_work("int64, 487 wide, left, 1 GiB", Batch(odd, 487, int64, side="left")),
        lambda: unpad_work("int64, 487 wide, left, 1 GiB", Batch(odd, 487, int64, side="left")),
        lambda: pad_work("int32, 1 GiB", Batch(rows_of(1024, 512, 4), 512, int32)),
        lambda: unpad_work("int32, 1 GiB", Batch(rows_of(1024, 512, 4), 512, int32)),
        lambda: pad_work("uint8, 512 MiB", Batch(rows_of(512, 512, 1), 512, uint8)),
        lambda: unpad_work("uint8, 512 MiB", Batch(rows_of(512, 512, 1), 512, uint8)),
        lambda: pad_work("int64, 24 wide, 512 MiB", Batch(rows_of(512, 24, 8), 24, int64)),
        lambda: mask_work(Batch(rows_of(512, 512, 8), 512, int64)),
        lambda: batch_work(Batch(rows_of(512, 512, 8), 512, int64)),
        lambda: flatten_work(Batch(rows_of(512, 512, 8), 512, int64)),
    ]
    return [measure_bandwidth(make()) for make in works]


def measure_bandwidth(work: Work) -> dict[str, Any]:
    work.call()
    if not work.check():
        raise AssertionError(f"{work.name}: wrong result")
    source = torch.randint(0, 256, (work.bytes // 2,), dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    copies = [microseconds_in_a_row(lambda: target.copy_(source))]
    own = microseconds_in_a_row(work.call)
    copies.append(microseconds_in_a_row(lambda: target.copy_(source)))
    copy = statistics.mean(copies)
    return {
        "case": work.name,
        "bytes": work.bytes,
        "microseconds": own,
        "gigabytes_per_second": work.bytes / own / 1e3,
        "copy_gigabytes_per_second": work.bytes / copy / 1e3,
        "share_of_copy": copy / own,
    }


def nested(batch: Batch) -> torch.Tensor:
    return torch.nested.nested_tensor_from_jagged(batch.ragged.values, batch.ragged.offsets, max_seqlen=batch.width)


def others_that_pad(batch: Batch) -> dict[str, Call]:
    values, offsets, shape = batch.ragged.values, batch.ragged.offsets, tuple(batch.padded.shape)
    jagged = nested(batch)
    dense = values if values.dim() > 1 else values[:, None]
    found: dict[str, Call] = {
        "torch.nested.to_padded_tensor": lambda: torch.nested.to_padded_tensor(jagged, 0, shape),
        "aten::_jagged_to_padded_dense_forward": lambda: torch.ops.aten._jagged_to_padded_dense_forward(
            dense, [offsets], [batch.width], 0.0
        ),
    }
    if batch.rows <= 1024:
        rows = list(batch.ragged)
        found["torch.nn.utils.rnn.pad_sequence"] = lambda: torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
    return found


def others_that_unpad(batch: Batch) -> dict[str, Call]:
    mask = batch.mask()
    flat, places = batch.padded.flatten(0, 1), mask.flatten().nonzero().flatten()
    return {
        "padded[mask]": lambda: batch.padded[mask],
        "index_select, places known": lambda: flat.index_select(0, places),
    }


def compare() -> list[dict[str, Any]]:
    """quadrat's functions beside torch's, on batches small and large."""
    results = []
    for name, batch in (
        ("64 x 512, int64", Batch(64, 512, torch.int64)),
        ("64 x 512 x 768, bfloat16", Batch(64, 512, torch.bfloat16, 0.75, (768,))),
        ("65536 x 512, int64", Batch(65536, 512, torch.int64)),
        ("256 x 512 x 768, float32", Batch(256, 512, torch.float32, 0.75, (768,))),
    ):
        rows, lengths, total = batch.ragged, batch.ragged.lengths, len(batch.ragged.values)
        own = {
            "pad": lambda rows=rows, batch=batch: quadrat.pad(rows, max_length=batch.width),
            "unpad": lambda batch=batch, lengths=lengths, total=total: (
                quadrat.unpad(batch.padded, lengths=lengths, total=total).values
            ),
        }
        for function, others in (("pad", others_that_pad(batch)), ("unpad", others_that_unpad(batch))):
            for other, call in others.items():
                expected = own[function]()
                if not torch.equal(call().reshape(expected.shape), expected):
                    raise AssertionError(f"{other} and quadrat.{function} differ on {name}")
                results.append(measure_against(f"{function}, {name}", other, own[function], call))
    return results


def measure_against(case: str, other: str, own: Call, call: Call) -> dict[str, Any]:
    mine, theirs = microseconds_of_calls(own, 50), microseconds_of_calls(call, 50)
    result = {"case": case, "other": other, "microseconds": mine, "other_microseconds": theirs, "ratio": theirs / mine}
    try:  # what waits for the GPU is not captured
        device = microseconds_in_a_graph(own, 10), microseconds_in_a_graph(call, 10)
        result |= {"graph_microseconds": device[0], "other_graph_microseconds": device[1]}
        result["graph_ratio"] = device[1] / device[0]
    except RuntimeError:
        torch.cuda.synchronize()
    return result


def masked() -> list[dict[str, Any]]:
    """Masked language modelling, padding and the attention mask together, beside padding and the mask alone."""
    batch = Batch(rows_of(512, 512, 8), 512, torch.int64)
    lengths = batch.ragged.lengths
    columns, (ids, labels, mask) = zip(batch.column(), batch.column(), batch.column(mask=True), strict=True)
    keys = torch.arange(batch.rows, device="cuda")

    special = torch.tensor([1 << 0 | 1 << 7], device="cuda")
    own = columns[0]
    options = PhiloxOptions(7, 0, 0.15, 0.8, 0.1, 103, 30522)
    source = own.values, own.values_size, own.offsets, batch.rows, own.width, own.left
    outputs = own.out, address_of(labels), address_of(mask)

    def alone() -> None:
        pad_columns(columns, batch.rows, ids.device)

    def one_by_one() -> Any:
        pad_columns([columns[0], columns[2]], batch.rows, ids.device)
        return quadrat.mask_tokens(ids, mask_token_id=103, vocab_size=30522, special_ids=[0, 7],
                                   rng="philox", seed=7, row_keys=keys, lengths=lengths)  # fmt: skip

    def together() -> None:
        launch("pad_masked", ids.device, options, address_of(keys), *source, address_of(special), 1, 0, *outputs)

    expected = one_by_one()
    together()
    if not (torch.equal(ids, expected[0]) and torch.equal(labels, expected[1])):
        raise AssertionError("masked one after the other, the batch is another")
    if not torch.equal(mask, batch.mask().long()):
        raise AssertionError("wrong attention mask")
    times = microseconds_in_a_row(alone), microseconds_in_a_row(together)
    return [
        {
            "case": "ids, labels and attention mask, int64, 512 MiB each",
            "pad_microseconds": times[0],
            "masked_microseconds": times[1],
            "one_by_one_microseconds": microseconds_in_a_row(one_by_one),
            "ratio": times[1] / times[0],
        }
    ]


SUITES: dict[str, Callable[[], list[dict[str, Any]]]] = {"bandwidth": bandwidth, "compare": compare, "masked": masked}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--suite", nargs="+", choices=SUITES, default=list(SUITES), help="only these")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the results (default: results/)")
    arguments = parser.parse_args()
    results: dict[str, Any] = {"machine": machine()}
    results |= {name: SUITES[name]() for name in arguments.suite}
    results = rounded(results)
    arguments.out.mkdir(parents=True, exist_ok=True)
    (arguments.out / "cuda.json").write_text(json.dumps(results, indent=2) + "\n")
    (arguments.out / "cuda.md").write_text(markdown(results))
    if "bandwidth" in results:
        plot(results["bandwidth"], results["machine"], arguments.out / "cuda")
    Console(width=200).print(markdown(results), markup=False)


if __name__ == "__main__":
    main()
