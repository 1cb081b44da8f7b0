"""Batches that are padded on the GPU beside batches that are padded on the CPU: how many a second, end to end.

`python benchmarks/deferred.py --out DIR`: rows of real length distribution, 32 a batch of up to 512 tokens, through a
pinned `DataLoader` to the GPU, by the collator of transformers, by quadrat's, and by quadrat's with `deferred=True`;
then the same loaders feeding a small encoder. Batches are compared before anything is timed. Without a GPU there is
nothing to see: `--device cpu` just tries the program.
"""

import argparse
import itertools
import json
import os
import statistics
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import torch
import transformers
from rich.console import Console
from rich.table import Table
from tokenizers import Tokenizer, models
from torch.utils.data import DataLoader
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

import quadrat
from pictures import save

ROWS = 32
MAX_LENGTH = 512
VOCABULARY = 30_000
WORKERS = (0, 2, 4, 8)
BATCHES = 512
WARM_UP = 50
COLOURS = {"reference": "#c2c2c2", "quadrat": "#b9cde5", "deferred": "#3f74b5"}
LABELS = {"reference": "transformers", "quadrat": "quadrat", "deferred": "quadrat, deferred"}
RESULTS = Path(__file__).parent / "results"

Row = dict[str, list[int]]


def tokenizer() -> Any:
    """One with BERT's inputs; its words do not matter, only how it pads."""
    words = {"[PAD]": 0, "[UNK]": 1, **{f"w{i}": i for i in range(2, VOCABULARY)}}
    return PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.WordLevel(words, unk_token="[UNK]")),
        pad_token="[PAD]",
        unk_token="[UNK]",
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
    )


def rows(count: int) -> list[Row]:
    """Rows of log-normal length, as texts have, cut at `MAX_LENGTH`; every batch has one of that length."""
    random = np.random.default_rng(0)
    lengths = np.clip(random.lognormal(5.2, 0.7, count).astype(int), 8, MAX_LENGTH)
    lengths[::ROWS] = MAX_LENGTH
    return [
        {
            "input_ids": random.integers(2, VOCABULARY, n).tolist(),
            "token_type_ids": [0] * int(n),
            "attention_mask": [1] * int(n),
        }
        for n in lengths
    ]


def collators() -> dict[str, Any]:
    made = tokenizer()
    made.deprecation_warnings["Asking-to-pad-a-fast-tokenizer"] = True
    return {
        "reference": transformers.DataCollatorWithPadding(made),
        "quadrat": quadrat.DataCollatorWithPadding(made),
        "deferred": quadrat.DataCollatorWithPadding(made, deferred=True),
    }


def check(dataset: list[Row], device: torch.device) -> dict[str, int]:
    """Raises AssertionError unless all collators make the same batches on the device; returns bytes that travel."""
    every = collators()
    sizes = {}
    for first in range(0, 4 * ROWS, ROWS):
        batch = dataset[first : first + ROWS]
        made = {name: collate(batch) for name, collate in every.items()}
        sizes = {
            name: one.nbytes if isinstance(one, quadrat.DeferredBatch) else sum(value.nbytes for value in one.values())
            for name, one in made.items()
        }
        expected, *others = (one.to(device) for one in made.values())
        for other in others:
            assert type(other) is type(expected)
            assert list(other) == list(expected)
            for name, value in expected.items():
                assert other[name].dtype == value.dtype
                assert other[name].device == value.device
                assert torch.equal(other[name], value), name
    return sizes


def synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def loader(dataset: list[Row], collate: Any, workers: int, device: torch.device) -> DataLoader[Any]:
    return DataLoader(
        dataset,  # type: ignore[arg-type]
        batch_size=ROWS,
        shuffle=True,
        collate_fn=collate,
        num_workers=workers,
        pin_memory=device.type == "cuda",
        persistent_workers=workers > 0,
        prefetch_factor=4 if workers else None,
        drop_last=True,
    )


def batches_per_second(
    source: DataLoader[Any], use: Callable[[Any], Any], device: torch.device, seconds: float
) -> float:
    """Epoch after epoch for so many seconds, once the workers have been started."""
    for batch in itertools.islice(source, WARM_UP):
        use(batch.to(device, non_blocking=True))
    synchronize(device)
    count, begin = 0, perf_counter()
    while perf_counter() - begin < seconds:
        for batch in source:
            use(batch.to(device, non_blocking=True))
            count += 1
            if perf_counter() - begin >= seconds:
                break
    synchronize(device)
    return count / (perf_counter() - begin)


def encoder(device: torch.device) -> Any:
    """Four layers of 256, mean pooling."""
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=VOCABULARY,
        hidden_size=256,
        num_hidden_layers=4,
        num_attention_heads=4,
        intermediate_size=1024,
        max_position_embeddings=MAX_LENGTH,
    )
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    model = BertModel(config, add_pooling_layer=False).to(device, dtype).eval()

    @torch.inference_mode()
    def embed(batch: Any) -> torch.Tensor:
        hidden = model(**batch).last_hidden_state
        mask = batch["attention_mask"].unsqueeze(-1)
        return (hidden * mask).sum(1) / mask.sum(1)

    return embed


def measure(
    sources: dict[str, DataLoader[Any]], use: Callable[[Any], Any], device: torch.device, seconds: float, rounds: int
) -> dict[str, Any]:
    """Batches a second by each collator, in turn; medians over the rounds, and ratios within a round."""
    speeds: dict[str, list[float]] = {name: [] for name in sources}
    for _ in range(rounds):
        for name, source in sources.items():
            speeds[name].append(batches_per_second(source, use, device, seconds))
    ratios = [new / old for new, old in zip(speeds["deferred"], speeds["reference"], strict=True)]
    return {
        "batches_per_second": {name: statistics.median(values) for name, values in speeds.items()},
        "all": speeds,
        "deferred_to_reference": statistics.median(ratios),
    }


def show(results: dict[str, Any]) -> None:
    console = Console()
    for title, found in (("to the device", results["loading"]), ("through an encoder", results["embedding"])):
        table = Table("workers", "reference", "quadrat", "deferred", "deferred / reference", title=f"batches/s {title}")
        for one in found:
            speeds = (f"{value:,.0f}" for value in one["batches_per_second"].values())
            table.add_row(str(one["workers"]), *speeds, f"{one['deferred_to_reference']:.2f}")
        console.print(table)
    console.print(f"bytes that travel: {results['bytes']}")


def plot(results: dict[str, Any], path: Path) -> None:
    """Batches a second by number of workers, each collator a bar."""
    panels = [("loading", "to the device"), ("embedding", "through an encoder")]
    panels = [(name, title) for name, title in panels if results[name]]
    figure, grid = plt.subplots(1, len(panels), figsize=(4.6 * len(panels), 3.4), layout="constrained", squeeze=False)
    for axes, (name, title) in zip(grid[0], panels, strict=True):
        found = results[name]
        for position, (collator, colour) in enumerate(COLOURS.items()):
            at = [index + (position - 1) * 0.27 for index in range(len(found))]
            speeds = [one["batches_per_second"][collator] for one in found]
            bars = axes.bar(at, speeds, width=0.25, color=colour, label=LABELS[collator])
            axes.bar_label(bars, [f"{speed:,.0f}" for speed in speeds], fontsize=6, padding=1)
        axes.set_ylim(0, 1.2 * max(max(one["batches_per_second"].values()) for one in found))
        axes.set_xticks(range(len(found)), [str(one["workers"]) for one in found])
        axes.set_xlabel("workers", fontsize=9)
        axes.set_title(f"Batches per second {title}", loc="left", fontsize=10, weight="bold")
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(labelsize=8)
    grid[0][0].legend(frameon=False, fontsize=8, ncols=3, loc="upper left")
    where = f"{results['device']}, torch {results['torch']}, transformers {results['transformers']}"
    save(figure, path, f"{where}; batches of {results['rows']} rows of up to {results['max_length']} tokens")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--seconds", type=float, default=2.0, help="per collator, worker count and round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workers", type=int, nargs="+", default=WORKERS)
    parser.add_argument("--batches", type=int, default=BATCHES, help="of an epoch")
    parser.add_argument("--no-encoder", action="store_true", help="only load")
    arguments = parser.parse_args()
    device = torch.device(arguments.device)
    torch.set_num_threads(1)
    dataset = rows(ROWS * arguments.batches)
    results: dict[str, Any] = {
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
        "cores": os.cpu_count(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "quadrat": quadrat.__version__,
        "rows": ROWS,
        "max_length": MAX_LENGTH,
        "bytes": check(dataset, device),
    }
    uses = {"loading": lambda batch: batch, "embedding": None if arguments.no_encoder else encoder(device)}
    for name, use in uses.items():
        results[name] = []
        for workers in arguments.workers if use is not None else ():
            sources = {one: loader(dataset, collate, workers, device) for one, collate in collators().items()}
            found = measure(sources, use, device, arguments.seconds, arguments.rounds)
            results[name].append({"workers": workers, **found})
            del sources  # and their workers
    arguments.out.mkdir(parents=True, exist_ok=True)
    (arguments.out / "deferred.json").write_text(json.dumps(results, indent=2) + "\n")
    plot(results, arguments.out / "deferred")
    show(results)


if __name__ == "__main__":
    main()
