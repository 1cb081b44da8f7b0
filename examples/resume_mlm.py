"""Stop masked language modelling in the middle of an epoch, resume it, and get the masks and losses of a whole run.

Dynamic masking masks other tokens in each epoch. Usually a generator draws the random numbers of one batch after the
other, so a resumed run, or a run with more workers, trains on other masks. With `rng="philox"` a mask depends only on
seed, epoch and row. `Trainer` trains a small BERT on the docstrings of installed packages for three epochs. Then it
trains for one and a half epochs, and a new Trainer resumes from the checkpoint. If the masks and losses of all steps
are not identical, the exit status is 1. Runs with two workers and with the default, `rng="torch"`, show what masks
depend on otherwise. Then the same for batches of a stream: the checkpoint has its state, so the resumed run reads no
batch that it skips. It takes about half a minute on two cores.

    python examples/resume_mlm.py
    python examples/resume_mlm.py --per-package 20
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import tempfile
import zlib
from typing import Any

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # its threads do not survive the fork of workers

import pandas as pd
import torch
import transformers
from corpus import docstrings, train_tokenizer
from transformers import (
    BertConfig,
    BertForMaskedLM,
    PreTrainedTokenizerBase,
    PrinterCallback,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    set_seed,
)

import quadrat

BATCH_SIZE = 16
MAX_TOKENS = 64
EPOCHS = 3


class RecordingTrainer(Trainer):
    """Keeps the number of masked tokens, a checksum of the masked batch and the loss of each step."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.record: list[dict[str, Any]] = []

    def compute_loss(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        ids, labels = inputs["input_ids"].numpy(), inputs["labels"].numpy()
        result = super().compute_loss(model, inputs, *args, **kwargs)
        loss = result[0] if isinstance(result, tuple) else result
        self.record.append(
            {
                "step": self.state.global_step + 1,
                "epoch": int(self.state.epoch),
                "masked tokens": int((labels != -100).sum()),
                "checksum": f"{zlib.crc32(labels.tobytes(), zlib.crc32(ids.tobytes())):08x}",
                "loss": loss.item(),
            }
        )
        return result


class StopAfter(TrainerCallback):
    """Saves a checkpoint after a step and stops, as a job at its time limit."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step == self.step:
            control.should_save = control.should_training_stop = True


def train(
    rows: list[dict[str, Any]] | quadrat.BatchedStream,
    tokenizer: PreTrainedTokenizerBase,
    folder: str,
    rng: str,
    *,
    workers: int = 0,
    stop_after: int | None = None,
    resume: bool = False,
    max_steps: int = -1,
) -> pd.DataFrame:
    """Train from the same start or from the checkpoint in `folder`, and return the record of the steps."""
    set_seed(0)
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=64,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=128,
        max_position_embeddings=MAX_TOKENS,
    )
    trainer = RecordingTrainer(
        model=BertForMaskedLM(config),
        args=TrainingArguments(
            folder,
            num_train_epochs=EPOCHS,
            max_steps=max_steps,  # a stream has no length
            per_device_train_batch_size=BATCH_SIZE if max_steps < 0 else 1,  # its items are batches
            learning_rate=5e-3,
            dataloader_num_workers=workers,
            dataloader_pin_memory=False,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            use_cpu=True,
        ),
        train_dataset=rows,
        data_collator=quadrat.DataCollatorForLanguageModeling(tokenizer, rng=rng),
        callbacks=[quadrat.SetEpochCallback()] + ([] if stop_after is None else [StopAfter(stop_after)]),
    )
    trainer.remove_callback(PrinterCallback)
    trainer.train(resume_from_checkpoint=resume)
    return pd.DataFrame(trainer.record)


def main() -> int:
    parser = argparse.ArgumentParser(description="Masked language modelling, stopped and resumed with the same masks.")
    parser.add_argument("--per-package", type=int, default=40, help="texts of a package (default: %(default)s)")
    options = parser.parse_args()
    torch.set_num_threads(1)  # enough for a small model; leaves a core to the workers
    transformers.logging.set_verbosity_error()  # Trainer warns of tied weights, which a checkpoint stores once
    transformers.logging.disable_progress_bar()

    texts = docstrings(per_package=options.per_package).texts
    tokenizer = train_tokenizer(texts, vocab_size=1000, max_length=MAX_TOKENS)
    encoded = tokenizer(texts, truncation=True)
    rows = [{name: encoded[name][row] for name in encoded} for row in range(len(texts))]
    steps = EPOCHS * math.ceil(len(rows) / BATCH_SIZE)
    half = steps // 2  # half of three epochs: the middle of the second

    collator = quadrat.DataCollatorForLanguageModeling(tokenizer, rng="philox")
    short = min(rows, key=lambda row: abs(len(row["input_ids"]) - 30))
    print(f"a text:  {tokenizer.decode(short['input_ids'])}")
    masked = []
    for epoch in (0, 1):
        collator.set_epoch(epoch)
        masked.append(tokenizer.decode(collator([short])["input_ids"][0]))
        print(f"epoch {epoch}: {masked[epoch]}")

    runs: dict[str, dict[str, pd.DataFrame]] = {}
    for rng in ("philox", "torch"):
        with tempfile.TemporaryDirectory() as folder:
            what = (rows, tokenizer, folder, rng)
            runs[rng] = {
                "in one go": train(*what),
                "stopped and resumed": pd.concat(
                    [train(*what, stop_after=half), train(*what, resume=True)], ignore_index=True
                ),
                "with two workers": train(*what, workers=2),
            }
    whole, resumed = runs["philox"]["in one go"], runs["philox"]["stopped and resumed"]

    stream = quadrat.BatchedStream(rows, max_tokens=BATCH_SIZE * MAX_TOKENS, window=len(rows) // 2)
    with tempfile.TemporaryDirectory() as folder:
        arguments, options = (stream, tokenizer, folder, "philox"), {"max_steps": steps, "workers": 2}
        of_stream = train(*arguments, **options)
        parts = [train(*arguments, stop_after=half, **options), train(*arguments, resume=True, **options)]

    print(f'\nrng="philox": {steps} steps in one go, or stopped after step {half} and resumed; some of the steps')
    table = whole.rename(columns={"loss": "loss in one go"}).assign(**{"loss stopped and resumed": resumed["loss"]})
    shown = [*range(1, steps, max(1, steps // 9)), half, half + 1, steps]
    print(table[table["step"].isin(shown)].to_string(index=False))

    same = pd.DataFrame(
        {
            f'rng="{rng}"': {
                how: (run["checksum"] == by_how["in one go"]["checksum"]).sum() for how, run in by_how.items()
            }
            for rng, by_how in runs.items()
        }
    )
    print(f"\nSteps with the masks of the run in one go, of {steps}")
    print(same.drop("in one go").to_string())
    # Dropout may draw other numbers if the checkpoint is of the last batch of an epoch, which Trainer does not know.
    together = pd.concat(parts, ignore_index=True)
    is_same = resumed.equals(whole) and together.drop(columns="loss").equals(of_stream.drop(columns="loss"))
    if not is_same or not (same['rng="philox"'] == steps).all() or masked[0] == masked[1]:
        print("Masks or losses are not as promised.", file=sys.stderr)
        return 1
    print(f'\nWith rng="philox", the masks and losses of all {steps} steps are identical.')
    print(f"So are the masks of a stream, in {of_stream['epoch'].nunique()} epochs, with two workers.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
