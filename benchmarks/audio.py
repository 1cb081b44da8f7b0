"""Audio: milliseconds a batch of `pad`, of speech collators and of feature extractors, quadrat's beside transformers'.

Ways are timed alternately on one thread, by the time of the processor; first, their batches are compared.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import pkgutil
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from time import process_time
from typing import Any

import datasets
import numpy as np
import torch
import transformers
from tokenizers import Tokenizer, models
from transformers import SequenceFeatureExtractor

import quadrat
from measure import check_same, machine, quiet, rounded, terminal

RESULTS = Path(__file__).parent / "results"
RATE = 16_000
RANDOM = ("UnivNetFeatureExtractor",)
TORCH_ONLY = ("CohereAsrFeatureExtractor", "PocketTTSFeatureExtractor", "VibeVoiceAcousticTokenizerFeatureExtractor")


def clips(count: int, seconds: tuple[float, float]) -> list[np.ndarray[Any, Any]]:
    """Noise of these lengths, as an extractor would leave it."""
    random = np.random.default_rng(0)
    sizes = random.integers(int(seconds[0] * RATE), int(seconds[1] * RATE), count)
    return [random.standard_normal(size).astype(np.float32) for size in sizes]


def processor(**options: Any) -> Any:
    """A processor of Wav2Vec2, of letters."""
    letters = {letter: index for index, letter in enumerate(["[PAD]", *"abcdefghijklmnopqrstuvwxyz "])}
    backend = Tokenizer(models.WordLevel(letters, unk_token=" "))
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=backend, pad_token="[PAD]")
    return transformers.Wav2Vec2Processor(transformers.Wav2Vec2FeatureExtractor(**options), tokenizer)


class Copied:
    """The collator for CTC that scripts copy."""

    def __init__(self, processor: Any) -> None:
        self.processor = processor

    def __call__(self, features: Any) -> Any:
        sounds = [{"input_values": feature["input_values"]} for feature in features]
        batch = self.processor.pad(sounds, padding=True, return_tensors="pt")
        rows = [{"input_ids": feature["labels"]} for feature in features]
        labels = self.processor.pad(labels=rows, padding=True, return_tensors="pt")
        batch["labels"] = labels["input_ids"].masked_fill(labels.attention_mask.ne(1), -100)
        if "attention_mask" in batch:
            batch["attention_mask"] = batch["attention_mask"].to(torch.long)
        return batch


def alternated(plain: Callable[[], Any], ours: Callable[[], Any], passes: int) -> dict[str, float]:
    """Median milliseconds of a call without quadrat's patches and of one with them, and the median of the ratios."""
    expected = plain()
    with quadrat.patch_transformers():
        check_same(expected, ours())
    times: dict[str, list[float]] = {"transformers": [], "quadrat": []}
    for _ in range(passes):
        for name, call in (("transformers", plain), ("quadrat", ours)):
            with quadrat.patch_transformers() if name == "quadrat" else contextlib.nullcontext():
                start = process_time()
                made = call()
                times[name].append((process_time() - start) * 1e3)
            del made
    found = {name: float(np.median(ms)) for name, ms in times.items()}
    return found | {"speed_up": float(np.median(np.divide(times["transformers"], times["quadrat"])))}


def batches(passes: int) -> dict[str, dict[str, float]]:
    """16 clips of 1 to 10 seconds, from arrays and from a dataset."""
    rows: list[dict[str, Any]] = [
        {"input_values": clip, "labels": np.random.default_rng(i).integers(1, 27, 90).tolist()}
        for i, clip in enumerate(clips(16, (1, 10)))
    ]
    types = {
        "input_values": datasets.Sequence(datasets.Value("float32")),
        "labels": datasets.Sequence(datasets.Value("int64")),
    }
    stored = datasets.Dataset.from_list(rows * 2, features=datasets.Features(types))
    arrays, places = stored.with_format("numpy"), list(np.random.default_rng(0).permutation(16))
    found = {}
    for masked, said in ((False, ""), (True, ", attention mask")):
        made = processor(return_attention_mask=masked)
        copied, ours = Copied(made), quadrat.DataCollatorCTCWithPadding(made)
        sounds = [{"input_values": row["input_values"]} for row in rows]

        def padded(extractor: Any = made.feature_extractor, sounds: Any = sounds) -> Any:
            return extractor.pad(sounds, return_tensors="pt")

        def fetched(collate: Any, dataset: Any = stored) -> Callable[[], Any]:
            return lambda: collate(dataset.__getitems__(places))

        for name, ways in {
            "feature_extractor.pad, arrays": (padded, padded),
            "copied collator, a Dataset": (fetched(copied), fetched(copied)),
            "copied collator, a Dataset with_format('numpy')": (fetched(copied, arrays), fetched(copied, arrays)),
            "DataCollatorCTCWithPadding, a Dataset": (fetched(copied), fetched(ours)),
        }.items():
            found[name + said] = alternated(*ways, passes)
    return found


def classes() -> Iterator[type]:
    """The extractors of the installed transformers that pad with the base class."""
    for module in pkgutil.iter_modules(transformers.models.__path__):
        name = f"transformers.models.{module.name}.feature_extraction_{module.name}"
        with contextlib.suppress(ImportError):
            for value in vars(importlib.import_module(name)).values():
                if isinstance(value, type) and issubclass(value, SequenceFeatureExtractor) and value.__module__ == name:
                    yield value


def extractors(passes: int) -> dict[str, Any]:
    """`feature_extractor(clips, padding=True)` of each, made of its default options, or why it was not timed."""
    found: dict[str, Any] = {}
    own = [clip[: RATE * 5] for clip in clips(8, (1, 5))]
    for cls in classes():
        if cls.pad is not SequenceFeatureExtractor.pad:
            found[cls.__name__] = "has a pad of its own"
            continue
        if cls.__name__ in RANDOM:
            found[cls.__name__] = "no two calls give the same"
            continue
        try:
            made = cls()
            tensors = "pt" if cls.__name__ in TORCH_ONLY else "np"
            rate = getattr(made, "sampling_rate", RATE)

            def call(made: Any = made, rate: Any = rate, tensors: str = tensors) -> Any:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    np.random.seed(0)  # two of them draw
                    return made([clip.copy() for clip in own], padding=True, sampling_rate=rate, return_tensors=tensors)

            found[cls.__name__] = alternated(call, call, passes)
        except Exception as error:
            found[cls.__name__] = f"{type(error).__name__}, {' '.join(str(error).split())[:80]}"
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--passes", type=int, default=15)
    parser.add_argument("--only", choices=["batches", "extractors"])
    parser.add_argument("--json", type=Path, default=RESULTS / "audio.json")
    options = parser.parse_args()
    torch.set_num_threads(1)
    with quiet():
        parts = {"batches": batches, "extractors": extractors}
        found = {name: part(options.passes) for name, part in parts.items() if options.only in (None, name)}
    console = terminal()
    for part in found.values():
        for name, result in part.items():
            said = result if isinstance(result, str) else ", ".join(f"{k} {v:.2f}" for k, v in result.items())
            console.print(f"{name}: {said}")
    if options.only is None:
        options.json.write_text(json.dumps(rounded({"machine": machine(), **found}), indent=2) + "\n")


if __name__ == "__main__":
    main()
