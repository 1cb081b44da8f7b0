"""Out of padding and back: `quadrat.bert_padding` and `unpad_many` beside plain PyTorch.

Plain PyTorch is what flash-attn and transformers do: sums, `nonzero`, `cumsum`, and indexing. Results are compared
before they are timed. With `--cuda`, times on a GPU, and the share of a copy's bandwidth as in `bench_cuda.py`. Prints
tables and writes them as JSON.
"""

import argparse
import json
import statistics
from collections.abc import Callable
from pathlib import Path
from time import perf_counter_ns
from typing import Any

import torch
from rich import box
from rich.progress import track
from rich.table import Table
from torch.nn import functional

import quadrat
from measure import machine, quiet, rounded, terminal
from quadrat import bert_padding

RESULTS = Path(__file__).parent / "results"
# rows, width, trailing dimensions, dtype
SIZES = (
    ("32 x 512 x 768, float32", (32, 512, 768), torch.float32),
    ("32 x 512 x 768, bfloat16", (32, 512, 768), torch.bfloat16),
    ("32 x 512, int64", (32, 512), torch.int64),
    ("256 x 2048, int64", (256, 2048), torch.int64),
)
SIDES = ("right", "left", "holes")
Way = Callable[[], Any]


def plain_unpad(hidden: Any, mask: Any) -> tuple[Any, ...]:
    lengths = mask.sum(dim=-1, dtype=torch.int32)
    indices = torch.nonzero(mask.flatten(), as_tuple=False).flatten()
    longest = lengths.max().item()
    bounds = functional.pad(torch.cumsum(lengths, dim=0, dtype=torch.int32), (1, 0))
    return hidden.reshape(-1, *hidden.shape[2:])[indices], indices, bounds, longest, lengths


def plain_pad(tokens: Any, indices: Any, batch: int, seqlen: int) -> Any:
    out = torch.zeros(batch * seqlen, *tokens.shape[1:], device=tokens.device, dtype=tokens.dtype)
    out[indices] = tokens
    return out.view(batch, seqlen, *tokens.shape[1:])


def mask_of(rows: int, width: int, side: str, device: str) -> Any:
    """A quarter of the width is padding on average."""
    generator = torch.Generator().manual_seed(0)
    lengths = torch.randint(width // 2, width + 1, (rows,), generator=generator)
    places = torch.arange(width)
    mask = places < lengths[:, None] if side == "right" else places >= width - lengths[:, None]
    mask = torch.rand(rows, width, generator=generator) < 0.75 if side == "holes" else mask
    return mask.long().to(device)


def hidden_of(shape: tuple[int, ...], dtype: Any, device: str) -> Any:
    return (torch.rand(shape, generator=torch.Generator().manual_seed(1)) * 1000).to(dtype).to(device)


def there_and_back(unpad: Any, pad: Any, hidden: Any, mask: Any) -> Way:
    def call() -> Any:
        tokens, indices, *_ = unpad(hidden, mask)
        return pad(tokens, indices, *mask.shape)

    return call


def cases(shape: tuple[int, ...], dtype: Any, side: str, device: str) -> dict[str, tuple[Way, Way]]:
    """By what they do: quadrat's way, and that of plain PyTorch."""
    mask, hidden = mask_of(*shape[:2], side, device), hidden_of(shape, dtype, device)
    tokens, indices, *_ = bert_padding.unpad_input(hidden, mask)
    unpad = lambda: bert_padding.unpad_input(hidden, mask)  # noqa: E731
    both = there_and_back(bert_padding.unpad_input, bert_padding.pad_input, hidden, mask)
    return {
        "unpad_input + pad_input": (
            both,
            there_and_back(plain_unpad, plain_pad, hidden, mask),
        ),
        "unpad_input": (unpad, lambda: plain_unpad(hidden, mask)),
        "pad_input": (
            lambda: bert_padding.pad_input(tokens, indices, *mask.shape),
            lambda: plain_pad(tokens, indices, *mask.shape),
        ),
    }


def several(device: str) -> dict[str, tuple[Way, Way]]:
    """What a step of reinforcement learning unpads: ids, a loss mask, log-probs twice, advantages."""
    mask = mask_of(64, 2048, "holes", device)
    dtypes = torch.int64, torch.bool, torch.float32, torch.float32, torch.float32
    tensors = [hidden_of((64, 2048), dtype, device) for dtype in dtypes]
    ours = lambda: quadrat.varlen.unpad_many(mask, *tensors).tensors  # noqa: E731
    kept = mask.bool()
    return {"unpad_many": (ours, lambda: tuple(one[kept] for one in tensors))}


def check(mine: Any, theirs: Any) -> None:
    pairs = zip(mine, theirs, strict=True) if isinstance(mine, tuple) else [(mine, theirs)]
    for one, other in pairs:
        same = torch.equal(one, other) and one.dtype == other.dtype if torch.is_tensor(one) else one == other
        if not same:
            raise AssertionError("quadrat and plain PyTorch differ")


def timed(way: Way, device: str) -> float:
    if device == "cuda":
        torch.cuda.synchronize()
    start = perf_counter_ns()
    result = way()
    if device == "cuda":
        torch.cuda.synchronize()
    taken = perf_counter_ns() - start
    del result
    return float(taken)


def compare(name: str, found: dict[str, tuple[Way, Way]], device: str, rounds: int) -> list[dict[str, Any]]:
    rows = []
    for what, (way, plain) in found.items():
        check(way(), plain())
        with quiet():
            pairs = [(timed(plain, device), timed(way, device)) for _ in range(rounds)]
        rows.append(
            {
                "case": what,
                "size": name,
                "plain_ns": statistics.median(plain_ns for plain_ns, _ in pairs),
                "quadrat_ns": statistics.median(own for _, own in pairs),
                "ratio": statistics.median(plain_ns / own for plain_ns, own in pairs),
            }
        )
    return rows


def all_cases(device: str, rounds: int) -> list[dict[str, Any]]:
    rows = []
    for name, shape, dtype in track(SIZES, "bert_padding", transient=True):
        for side in SIDES:
            times = rounds if len(shape) > 2 else 20 * rounds
            rows += compare(f"{name}, {side}", cases(shape, dtype, side, device), device, times)
    return rows + compare("64 x 2048, five tensors, holes", several(device), device, 5 * rounds)


def bandwidth() -> list[dict[str, Any]]:
    """Each way out and back on a GPU, beside a copy of as many bytes."""
    from bench_cuda import Work, measure_bandwidth

    results = []
    for name, shape, dtype in (
        ("bfloat16 [768]", (1024, 512, 768), torch.bfloat16),
        ("float32 [16, 64]", (512, 512, 16, 64), torch.float32),
        ("int64", (131072, 512), torch.int64),
    ):
        for side in SIDES:
            mask, hidden = mask_of(*shape[:2], side, "cuda"), hidden_of(shape, dtype, "cuda")
            tokens, indices, *_ = bert_padding.unpad_input(hidden, mask)
            padded = plain_pad(tokens, indices, *mask.shape)
            # Indices are read where tokens do not lie side by side, and are no part of what must be moved.
            works = [
                Work(
                    f"unpad_input, {name}, {side}",
                    lambda hidden=hidden, mask=mask: bert_padding.unpad_input(hidden, mask)[0],
                    2 * tokens.nbytes,
                    lambda hidden=hidden, mask=mask, tokens=tokens: torch.equal(plain_unpad(hidden, mask)[0], tokens),
                ),
                Work(
                    f"pad_input, {name}, {side}",
                    lambda tokens=tokens, indices=indices, mask=mask: bert_padding.pad_input(
                        tokens, indices, *mask.shape
                    ),
                    tokens.nbytes + padded.nbytes,
                    lambda tokens=tokens, indices=indices, mask=mask, padded=padded: torch.equal(
                        bert_padding.pad_input(tokens, indices, *mask.shape), padded
                    ),
                ),
            ]
            results += [measure_bandwidth(work) for work in works]
    return results


def table(title: str, rows: list[dict[str, Any]]) -> Table:
    view = Table(title=title, box=box.SIMPLE_HEAD)
    for name in rows[0]:
        view.add_column(name.removesuffix("_ns").replace("_", " "), justify="right")
    for row in rows:
        view.add_row(*(shown(name, value) for name, value in row.items()))
    return view


def shown(name: str, value: Any) -> str:
    if name.endswith("_ns"):
        return f"{value / 1e6:,.3g} ms"
    if isinstance(value, float):
        return f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cuda", action="store_true", help="on a GPU, with the share of a copy's bandwidth")
    parser.add_argument("--rounds", type=int, default=15, help="of each comparison (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the results")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    device = "cuda" if arguments.cuda else "cpu"
    document: dict[str, Any] = {"machine": machine(), "bert_padding": all_cases(device, arguments.rounds)}
    console = terminal()
    console.print(table(f"quadrat and plain PyTorch, {device}", document["bert_padding"]))
    if arguments.cuda:
        document["gpu"] = torch.cuda.get_device_name()
        document["bandwidth"] = bandwidth()
        console.print(table("beside a copy", document["bandwidth"]))
    arguments.out.mkdir(parents=True, exist_ok=True)
    name = "varlen_cuda.json" if arguments.cuda else "varlen.json"
    (arguments.out / name).write_text(json.dumps(rounded(document), indent=2) + "\n")


if __name__ == "__main__":
    main()
