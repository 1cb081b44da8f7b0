"""How close padding from Arrow comes to the memory's limit: a memcpy of the tokens and a fill of the padding.

Both write the same bytes of three int64 columns; the limit into memory that is there, the collator into tensors that it
makes. Prints a table and writes it as JSON.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from rich import box
from rich.table import Table

import quadrat
from cases import token_rows, tokenizer
from measure import alone, machine, quiet, rounded, sample, terminal
from quadrat.input.rows import rows_of_arrow

RESULTS = Path(__file__).parent / "results"
COLUMNS = ("input_ids", "token_type_ids", "attention_mask")
TOKENS = (14_000, 100_000, 1_000_000, 10_000_000)


def arrow(rows: list[np.ndarray], kind: str) -> pa.Table:
    """Three columns of these rows, as lists of `kind`."""
    offsets = pa.array(np.cumsum([0, *map(len, rows)]), pa.int32())
    values = pa.array(np.concatenate(rows).astype(kind))
    return pa.table({name: pa.ListArray.from_arrays(offsets, values) for name in COLUMNS})


def limit(rows: list[np.ndarray]) -> Any:
    """A function that copies the bytes of the columns and fills those of the padding."""
    tokens, padded = sum(map(len, rows)), len(rows) * max(map(len, rows))
    sources = [np.concatenate(rows).astype(np.int64) for _ in COLUMNS]
    targets = [np.ones(padded, np.int64) for _ in COLUMNS]

    def copy_and_fill(_: Any) -> None:
        for source, target in zip(sources, targets, strict=True):
            np.copyto(target[:tokens], source)
            target[tokens:].fill(0)

    return copy_and_fill


def check(rows: list[np.ndarray], batch: Any) -> None:
    for i, row in enumerate(rows):
        for name in COLUMNS:
            assert np.array_equal(batch[name][i, : len(row)], row), (name, i)
    assert all(int(batch[name].sum()) == sum(int(row.sum()) for row in rows) for name in COLUMNS)


def measure(tokens: int, kind: str, seconds: float) -> dict[str, Any]:
    rows = token_rows(tokens)
    collator = quadrat.DataCollatorWithPadding(tokenizer())
    features = rows_of_arrow(arrow(rows, kind))
    batch = collator(features)
    if tokens <= 1_000_000:
        check(rows, batch)
    copy_and_fill = limit(rows)
    pairs = []
    with quiet():
        calls = max(1, 200_000 // tokens)
        for _ in range(max(15, int(seconds * 2e8 / tokens / calls))):
            pairs.append((sample(copy_and_fill, features, calls), sample(collator, features, calls)))
    times = np.array(pairs)
    return {
        "tokens": int(tokens),
        "rows": len(rows),
        "arrow": kind,
        "padded_bytes": int(sum(batch[name].nbytes for name in COLUMNS)),
        "limit_ns": float(np.median(times[:, 0])),
        "collator_ns": float(np.median(times[:, 1])),
        "collator_alone_ns": alone(collator, features, seconds=seconds / 4),
        "ratio": float(np.median(times[:, 1] / times[:, 0])),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=2.0, help="time for a batch size (default: 2)")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the results")
    arguments = parser.parse_args()
    results = [measure(tokens, kind, arguments.seconds) for kind in ("int64", "int32") for tokens in TOKENS]
    view = Table(box=box.SIMPLE_HEAD)
    for heading in ("tokens", "rows", "Arrow values", "memcpy and fill", "padding", "ratio"):
        view.add_column(heading, justify="right")
    for result in results:
        view.add_row(
            f"{result['tokens']:,}",
            f"{result['rows']:,}",
            result["arrow"],
            f"{result['limit_ns'] / 1e3:,.1f} µs",
            f"{result['collator_ns'] / 1e3:,.1f} µs",
            f"{result['ratio']:.2f}",
        )
    terminal().print(view)
    arguments.out.mkdir(parents=True, exist_ok=True)
    document = rounded({"machine": machine(), "sizes": results})
    (arguments.out / "limit.json").write_text(json.dumps(document, indent=2) + "\n")


if __name__ == "__main__":
    main()
