"""Audio: batches of `feature_extractor.pad` and of speech collators, by the time of the processor."""

import string
from collections.abc import Callable
from functools import partial
from typing import Any

import datasets
import numpy as np
import torch
import transformers
from tokenizers import Tokenizer, models

import quadrat
from benchmarks.measure import Case, Cases, Way, processor

RATE = 16_000


def clips(count: int, seconds: tuple[float, float]) -> list[np.ndarray[Any, Any]]:
    """Noise of these lengths, as an extractor would leave it."""
    random = np.random.default_rng(0)
    sizes = random.integers(int(seconds[0] * RATE), int(seconds[1] * RATE), count)
    return [random.standard_normal(size).astype(np.float32) for size in sizes]


def processor_of(**options: Any) -> Any:
    """A processor of Wav2Vec2, of letters."""
    letters = {letter: index for index, letter in enumerate(["[PAD]", *string.ascii_lowercase, " "])}
    backend = Tokenizer(models.WordLevel(letters, unk_token=" "))
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=backend, pad_token="[PAD]")
    return transformers.Wav2Vec2Processor(transformers.Wav2Vec2FeatureExtractor(**options), tokenizer)


def copied(made: Any, features: Any) -> Any:
    """The collator for CTC that scripts copy."""
    sounds = [{"input_values": feature["input_values"]} for feature in features]
    batch = made.pad(sounds, padding=True, return_tensors="pt")
    rows = [{"input_ids": feature["labels"]} for feature in features]
    labels = made.pad(labels=rows, padding=True, return_tensors="pt")
    batch["labels"] = labels["input_ids"].masked_fill(labels.attention_mask.ne(1), -100)
    if "attention_mask" in batch:
        batch["attention_mask"] = batch["attention_mask"].to(torch.long)
    return batch


def patched(plain: Callable[[], Any], ours: Callable[[], Any] | None = None) -> Case:
    """The same calls without quadrat's patches and with them."""
    ways = {"transformers": plain, "quadrat": Way(ours or plain, around=quadrat.patch_transformers)}
    return Case(ways, stopwatch=processor, rounds=15)


def rows() -> list[dict[str, Any]]:
    """16 clips of 1 to 10 seconds, with labels."""
    labels = (np.random.default_rng(number).integers(1, 27, 90).tolist() for number in range(16))
    return [{"input_values": clip, "labels": row} for clip, row in zip(clips(16, (1, 10)), labels, strict=True)]


def batch(masked: bool, collator: Any, form: str | None = None) -> Case:
    """Rows of a dataset, fetched and collated; or of arrays, padded by the extractor."""
    made = processor_of(return_attention_mask=masked)
    if collator is None:
        sounds = [{"input_values": row["input_values"]} for row in rows()]
        return patched(partial(made.feature_extractor.pad, sounds, return_tensors="pt"))
    types = {"input_values": datasets.Value("float32"), "labels": datasets.Value("int64")}
    features = datasets.Features({name: datasets.Sequence(value) for name, value in types.items()})
    stored = datasets.Dataset.from_list(rows() * 2, features=features).with_format(form)
    places = list(np.random.default_rng(0).permutation(16))
    theirs = partial(copied, made)
    ours = theirs if collator is copied else collator(made)
    return patched(*(lambda one=one: one(stored.__getitems__(places)) for one in (theirs, ours)))


def cases(*, quick: bool) -> Cases:
    found: Cases = {}
    for masked, said in ((False, ""), (True, ", attention mask")):
        for name, made in {
            "feature_extractor.pad, arrays": (None,),
            "copied collator, a Dataset": (copied,),
            "copied collator, a Dataset with_format('numpy')": (copied, "numpy"),
            "DataCollatorCTCWithPadding, a Dataset": (quadrat.speech.DataCollatorCTCWithPadding,),
        }.items():
            found[name + said] = partial(batch, masked, *made)
    return found
