"""FlexAttention's block mask, and the functions of context parallelism, against torch and plain PyTorch.

`document_block_mask` against `torch.nn.attention.flex_attention.create_block_mask`, eager and compiled, with the mask
function that quadrat's mask has; all tensors of the two must be equal. X
"""

import argparse
import json
import statistics
from collections.abc import Callable
from pathlib import Path
from time import perf_counter_ns
from typing import Any

import numpy as np
import torch
from rich import box
from rich.table import Table
from torch.nn.attention.flex_attention import BlockMask, create_block_mask

import quadrat
from measure import machine, quiet, rounded, terminal

RESULTS = Path(__file__).parent / "results"
TENSORS = ("kv_num_blocks", "kv_indices", "full_kv_num_blocks", "full_kv_indices")
TENSORS += ("q_num_blocks", "q_indices", "full_q_num_blocks", "full_q_indices")
CP_SIZE, CP_RANK = 4, 1


def synchronise(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def same(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.dtype == other.dtype and torch.equal(one, other)


def timed(way: Callable[[], Any], device: str) -> float:
    synchronise(device)
    start = perf_counter_ns()
    result = way()
    synchronise(device)
    taken = perf_counter_ns() - start
    del result
    return float(taken)


def alternating(ways: dict[str, Callable[[], Any]], rounds: dict[str, int], device: str) -> dict[str, float]:
    """The median of each way, in nanoseconds; slow ones take part in fewer rounds."""
    times: dict[str, list[float]] = {name: [] for name in ways}
    with quiet():
        for number in range(max(rounds.values())):
            for name, way in ways.items():
                if number < rounds[name]:
                    times[name].append(timed(way, device))
    return {name: statistics.median(taken) for name, taken in times.items()}


def boundaries(tokens: int, documents: int, device: str) -> torch.Tensor:
    """Boundaries of documents of random lengths."""
    cuts = np.sort(np.random.default_rng(0).choice(np.arange(1, tokens), documents - 1, replace=False))
    return torch.tensor([0, *cuts.tolist(), tokens], dtype=torch.int32, device=device)


def masks(tokens: int, documents: int, window: int | None, device: str, rounds: int) -> dict[str, Any]:
    bounds = boundaries(tokens, documents, device)
    options = {"window": window, "total_length": tokens}
    mask_mod = quadrat.varlen.document_block_mask(bounds, **options).mask_mod
    compiled = torch.compile(create_block_mask)

    def by_torch(create: Callable[..., BlockMask]) -> BlockMask:
        return create(mask_mod, None, None, tokens, tokens, device=device)

    ways: dict[str, Callable[[], BlockMask]] = {
        "quadrat": lambda: quadrat.varlen.document_block_mask(bounds, **options),
        "compiled": lambda: by_torch(compiled),
        "eager": lambda: by_torch(create_block_mask),
    }
    made = {name: way() for name, way in ways.items()}
    for name in ("compiled", "eager"):
        for tensor in TENSORS:
            one, other = getattr(made["quadrat"], tensor), getattr(made[name], tensor)
            assert same(one, other), (name, tensor)
    del made
    eager = rounds if device == "cuda" else 1
    taken = alternating(ways, {"quadrat": 10 * rounds, "compiled": rounds, "eager": eager}, device)
    return {
        "device": device,
        "tokens": tokens,
        "documents": documents,
        "window": window,
        **{f"{name}_ns": time for name, time in taken.items()},
        **{f"{name}_ratio": taken[name] / taken["quadrat"] for name in ("compiled", "eager")},
    }


def plain_slice(bounds: torch.Tensor, *columns: torch.Tensor) -> tuple[torch.Tensor, ...]:
    sizes = (bounds[1:] - bounds[:-1]) // (2 * CP_SIZE)
    made = []
    for column in columns:
        chosen = []
        for size, start in zip(sizes, bounds[:-1], strict=True):
            for number in (CP_RANK, 2 * CP_SIZE - CP_RANK - 1):
                chosen.append(torch.arange(start + number * size, start + (number + 1) * size, device=column.device))
        made.append(column.index_select(1, torch.cat(chosen)))
    return tuple(made)


def context(sequences: int, mean: int, device: str, rounds: int) -> list[dict[str, Any]]:
    lengths = np.random.default_rng(0).integers(1, 2 * mean, sequences)
    bounds = torch.tensor(np.cumsum([0, *lengths]), device=device)
    ids = torch.arange(int(bounds[-1]), device=device)
    aligned = quadrat.varlen.align(bounds, ids, ids, pad_to_multiple_of=2 * CP_SIZE)
    padded = aligned.cu_seqlens_padded
    batch = [one[None] for one in (*aligned.values, aligned.position_ids)]
    group = {"cp_size": CP_SIZE, "cp_rank": CP_RANK}
    pairs: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
        "context_parallel_slice": (
            lambda: plain_slice(padded, *batch),
            lambda: quadrat.varlen.context_parallel_slice(padded, *batch, dim=1, **group),
        ),
    }
    rows = []
    for name, (plain, ours) in pairs.items():
        for one, other in zip(plain(), ours(), strict=True):
            assert same(one, other), name
        taken = alternating({"plain": plain, "quadrat": ours}, {"plain": rounds, "quadrat": rounds}, device)
        rows.append(
            {
                "function": name,
                "device": device,
                "sequences": sequences,
                "tokens": len(ids),
                **{f"{way}_ns": time for way, time in taken.items()},
                "plain_ratio": taken["plain"] / taken["quadrat"],
            }
        )
    return rows


def table(title: str, rows: list[dict[str, Any]]) -> Table:
    view = Table(title=title, box=box.SIMPLE_HEAD)
    for name in rows[0]:
        view.add_column(name.removesuffix("_ns").replace("_ratio", " / quadrat").replace("_", " "), justify="right")
    for row in rows:
        view.add_row(*(shown(name, value) for name, value in row.items()))
    return view


def shown(name: str, value: Any) -> str:
    if name.endswith("_ns"):
        return f"{value / 1e6:,.3g} ms"
    if isinstance(value, float):
        return f"{value:,.4g}"
    return f"{value:,}" if isinstance(value, int) else str(value or "-")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="of each comparison (default: %(default)s)")
    parser.add_argument("--tokens", type=int, default=32768, help="of the longest mask (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the results")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rounds, longest = arguments.rounds, arguments.tokens
    device = "cuda" if torch.cuda.is_available() else "cpu"
    sizes = ((longest // 4, 8, None), (longest, 32, None), (longest, 512, None), (longest, 32, 1024))
    compared = [masks(*size, device, rounds) for size in sizes]
    sliced = [row for count in (64, 512) for row in context(count, 128, device, 4 * rounds)]
    console = terminal()
    console.print(table("block masks", compared))
    console.print(table(f"context parallelism, rank {CP_RANK} of {CP_SIZE}", sliced))
    arguments.out.mkdir(parents=True, exist_ok=True)
    document = {"machine": machine(), "masks": compared, "context_parallel": sliced}
    name = "varlen_masks.json" if device == "cpu" else "varlen_masks_cuda.json"
    (arguments.out / name).write_text(json.dumps(rounded(document), indent=2) + "\n")


if __name__ == "__main__":
    main()
