"""Train a small Wav2Vec2 and a small Whisper three ways on the same clips, and compare losses and time.

The first way is transformers with the collator that scripts copy from its examples. The second adds one line,
`quadrat.patch_transformers()`. The third also uses quadrat's collator of the same name, which reads the rows in Arrow.
Losses are equal at each step, to the last bit. The clips are notes, and their labels are the names of the notes.

    python examples/speech.py
    python examples/speech.py --clips 64 --seconds 10
"""

from __future__ import annotations

import argparse
import contextlib
import tempfile
import time
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
import transformers
from datasets import Dataset
from tokenizers import Tokenizer, models

import quadrat

RATE, START = 16_000, 1
WORDS = {"[PAD]": 0, "<s>": START, **{note: number for number, note in enumerate("cdefgab", 2)}}
SMALL = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}


class Copied:
    """The collators of transformers' example scripts: for CTC, and for encoder-decoder models."""

    def __init__(self, processor: Any) -> None:
        self.processor = processor

    def __call__(self, features: Any) -> Any:
        """Pad clips, and labels with -100."""
        parts = self.processor
        name = parts.feature_extractor.model_input_names[0]
        batch = parts.feature_extractor.pad([{name: feature[name]} for feature in features], return_tensors="pt")
        rows = [{"input_ids": feature["labels"]} for feature in features]
        padded = parts.tokenizer.pad(rows, return_tensors="pt")
        labels = padded["input_ids"].masked_fill(padded.attention_mask.ne(1), -100)
        batch["labels"] = labels[:, 1:] if (labels[:, 0] == START).all() else labels
        if "attention_mask" in batch:
            batch["attention_mask"] = batch["attention_mask"].to(torch.long)
        return batch


def clips(count: int, seconds: float) -> list[dict[str, Any]]:
    """Notes of random length, and their names."""
    random = np.random.default_rng(0)
    found = []
    for _ in range(count):
        notes = random.integers(2, len(WORDS), 3)
        size = int(random.uniform(0.1, 1) * seconds * RATE / 3)
        pitches = np.repeat(220 * 2 ** (notes / 7), size)
        found.append({"sound": np.sin(np.arange(3 * size) * pitches / RATE).astype(np.float32), "notes": notes})
    return found


def wav2vec2(rows: list[dict[str, Any]], tokenizer: Any) -> tuple[Any, Dataset, Any, Any]:
    """A model, its data, its processor and quadrat's collator."""
    extractor = transformers.Wav2Vec2FeatureExtractor(return_attention_mask=True)
    processor = transformers.Wav2Vec2Processor(extractor, tokenizer)
    convolutions = {"conv_dim": (16, 16), "conv_kernel": (10, 8), "conv_stride": (5, 64), "num_feat_extract_layers": 2}
    config = transformers.Wav2Vec2Config(
        **SMALL, **convolutions, vocab_size=len(WORDS), num_conv_pos_embeddings=8, num_conv_pos_embedding_groups=2
    )
    data = Dataset.from_list(
        [
            {"input_values": extractor(row["sound"], sampling_rate=RATE)["input_values"][0], "labels": row["notes"]}
            for row in rows
        ]
    )
    return transformers.Wav2Vec2ForCTC(config), data, processor, quadrat.speech.DataCollatorCTCWithPadding(processor)


def whisper(rows: list[dict[str, Any]], tokenizer: Any) -> tuple[Any, Dataset, Any, Any]:
    """A model, its data, its processor and quadrat's collator."""
    extractor = transformers.WhisperFeatureExtractor(chunk_length=3)
    processor = SimpleNamespace(  # a WhisperProcessor, whose tokenizer would have to be downloaded
        feature_extractor=extractor, tokenizer=tokenizer, model_input_names=["input_features"]
    )
    heads = {
        f"{part}_{name}": 2 if "heads" in name else 1
        for part in ("encoder", "decoder")
        for name in ("layers", "attention_heads")
    }
    sizes = {"d_model": 32, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32, "max_source_positions": 150}
    tokens = {"vocab_size": len(WORDS), "decoder_start_token_id": START}
    special = {"pad_token_id": 0, "bos_token_id": START, "eos_token_id": START, "begin_suppress_tokens": None}
    config = transformers.WhisperConfig(**heads, **sizes, **tokens, **special)
    data = Dataset.from_list(
        [
            {
                "input_features": extractor(row["sound"], sampling_rate=RATE)["input_features"][0],
                "labels": [START, *row["notes"]],
            }
            for row in rows
        ]
    )
    collator = quadrat.speech.DataCollatorSpeechSeq2SeqWithPadding(processor, START, forward_attention_mask=False)
    return transformers.WhisperForConditionalGeneration(config), data, processor, collator


class Recording(transformers.Trainer):
    """A Trainer that keeps the loss of each step, which its log rounds."""

    def training_step(self, *arguments: Any, **options: Any) -> torch.Tensor:
        """The loss of a step."""
        loss = super().training_step(*arguments, **options)
        self.losses = [*getattr(self, "losses", []), loss.item()]
        return loss


def train(make: Any, rows: list[dict[str, Any]], way: str, options: argparse.Namespace) -> tuple[list[float], float]:
    """The losses, and the share of the time in which batches were fetched and collated."""
    backend = Tokenizer(models.WordLevel(WORDS, unk_token="c"))
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=backend, pad_token="[PAD]")
    transformers.set_seed(0)
    model, data, processor, collator = make(rows, tokenizer)
    with (
        tempfile.TemporaryDirectory() as folder,
        contextlib.nullcontext() if way == "transformers" else quadrat.patch_transformers(),
    ):
        trainer = Recording(
            model,
            transformers.TrainingArguments(
                folder,
                per_device_train_batch_size=options.batch_size,
                num_train_epochs=1,
                learning_rate=1e-3,
                report_to=[],
                remove_unused_columns=False,
                use_cpu=True,
                disable_tqdm=True,
                save_strategy="no",
            ),
            train_dataset=data,
            data_collator=collator if way == "quadrat's collator" else Copied(processor),
        )
        with contextlib.redirect_stdout(None):
            start = time.perf_counter()
            trainer.train()
            took = time.perf_counter() - start
        start = time.perf_counter()
        batches = sum(1 for _ in trainer.get_train_dataloader())
        collating = time.perf_counter() - start
    assert len(trainer.losses) == batches
    return trainer.losses, collating / took


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clips", type=int, default=48)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--batch-size", type=int, default=8)
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = clips(options.clips, options.seconds)
    for make in (wav2vec2, whisper):
        expected: list[float] = []
        for way in ("transformers", "patched", "quadrat's collator"):
            losses, share = train(make, rows, way, options)
            expected = expected or losses
            same = "the same" if losses == expected else "OTHER"
            print(f"{make.__name__}, {way}: {same} losses at {len(losses)} steps, {share:.1%} of the time for batches")


if __name__ == "__main__":
    main()
