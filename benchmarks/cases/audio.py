"""Audio: batches of `pad`, of speech collators and of feature extractors, by the time of the processor."""

import contextlib
import importlib
import pkgutil
import string
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import datasets
import numpy as np
import torch
import transformers
from tokenizers import Tokenizer, models
from transformers import SequenceFeatureExtractor

import quadrat
from benchmarks.measure import Case, Cases, Way, processor

RATE = 16_000
RANDOM = ("UnivNetFeatureExtractor",)
TORCH_ONLY = tuple(
    f"{name}FeatureExtractor" for name in ["CohereAsr", "OmniASR", "PocketTTS", "VibeVoiceAcousticTokenizer"]
)


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


def patched(part: str, plain: Callable[[], Any], ours: Callable[[], Any] | None = None) -> Case:
    """The same calls without quadrat's patches and with them."""
    ways = {"transformers": plain, "quadrat": Way(ours or plain, around=quadrat.patch_transformers)}
    return Case(ways, {"part": part}, stopwatch=processor, rounds=15)


def rows() -> list[dict[str, Any]]:
    """16 clips of 1 to 10 seconds, with labels."""
    labels = (np.random.default_rng(number).integers(1, 27, 90).tolist() for number in range(16))
    return [{"input_values": clip, "labels": row} for clip, row in zip(clips(16, (1, 10)), labels, strict=True)]


def batch(masked: bool, collator: Any, form: str | None = None) -> Case:
    """Rows of a dataset, fetched and collated; or of arrays, padded by the extractor."""
    made = processor_of(return_attention_mask=masked)
    if collator is None:
        sounds = [{"input_values": row["input_values"]} for row in rows()]
        return patched("batches", partial(made.feature_extractor.pad, sounds, return_tensors="pt"))
    types = {"input_values": datasets.Value("float32"), "labels": datasets.Value("int64")}
    features = datasets.Features({name: datasets.Sequence(value) for name, value in types.items()})
    stored = datasets.Dataset.from_list(rows() * 2, features=features).with_format(form)
    places = list(np.random.default_rng(0).permutation(16))
    theirs = partial(copied, made)
    ours = theirs if collator is copied else collator(made)
    return patched("batches", *(lambda one=one: one(stored.__getitems__(places)) for one in (theirs, ours)))


def classes() -> Iterator[Any]:
    """The extractors of the installed transformers that pad with the base class."""
    for module in pkgutil.iter_modules(transformers.models.__path__):
        name = f"transformers.models.{module.name}.feature_extraction_{module.name}"
        with contextlib.suppress(ImportError):
            for value in vars(importlib.import_module(name)).values():
                if isinstance(value, type) and issubclass(value, SequenceFeatureExtractor) and value.__module__ == name:
                    yield value


def extractor(cls: Any) -> Case:
    """`feature_extractor(clips, padding=True)`, made of its default options, or why it is not timed."""
    if cls.pad is not SequenceFeatureExtractor.pad:
        return not_timed("has a pad of its own")
    if cls.__name__ in RANDOM:
        return not_timed("no two calls give the same")
    own = clips(8, (1, 5))
    options = {"padding": True, "return_tensors": "pt" if cls.__name__ in TORCH_ONLY else "np"}

    def call() -> Any:
        np.random.seed(0)  # two of them draw
        return made([clip.copy() for clip in own], sampling_rate=getattr(made, "sampling_rate", RATE), **options)

    try:
        made = cls()
        call()
    except Exception as error:
        return not_timed(f"{type(error).__name__}, {' '.join(str(error).split())[:80]}")
    return patched("extractors", call)


def not_timed(why: str) -> Case:
    return Case(facts={"part": "extractors", "not_timed": why})


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
    return found | {cls.__name__: partial(extractor, cls) for cls in classes()}
