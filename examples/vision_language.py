"""Fine-tune a small Qwen2.5-VL on pictures and text, with a collator written by hand and with quadrat's.

A processor prepared the rows: `pixel_values` has a row for each patch of a picture, `image_grid_thw` a row for each
picture, `position_ids` are those of M-RoPE, `[3, 1, length]`, and some rows have no picture. Scripts that fine-tune
such models write a collator by hand: it pads the tokens, pads the positions on their last axis, and joins the rest.
quadrat's DataCollatorForSeq2Seq does so with three options. The model has transformers' own class and random weights;
nothing is downloaded. The batches must be equal, and so must the losses of all steps. Otherwise the exit status is 1.

    python examples/vision_language.py
    accelerate launch --multi_gpu --num_processes 2 examples/vision_language.py
"""

from __future__ import annotations

import argparse
import inspect
import sys
import tempfile
from collections.abc import Callable
from typing import Any

import torch
from tokenizers import Tokenizer, models
from torch.nn.functional import pad
from torch.nn.utils.rnn import pad_sequence
from transformers import (
    PreTrainedTokenizerFast,
    PrinterCallback,
    Qwen2_5_VLConfig,
    Qwen2_5_VLForConditionalGeneration,
    Trainer,
    TrainingArguments,
    set_seed,
)

import quadrat

PAD, VISION_START, IMAGE, WORDS = 0, 1, 2, 60
SIDES = (4, 6, 8)  # of pictures, in patches

Row = dict[str, torch.Tensor]
Rows = list[Row]


def collate_by_hand(rows: Rows) -> dict[str, torch.Tensor]:
    input_ids = pad_sequence([row["input_ids"] for row in rows], batch_first=True, padding_value=PAD)
    labels = pad_sequence([row["labels"] for row in rows], batch_first=True, padding_value=-100)
    width = input_ids.shape[1]
    position_ids = [pad(row["position_ids"], (0, width - row["position_ids"].shape[-1]), value=1) for row in rows]
    batch = {
        "input_ids": input_ids,
        "attention_mask": pad_sequence([row["attention_mask"] for row in rows], batch_first=True),
        "labels": labels,
        "position_ids": torch.cat(position_ids, dim=1),
    }
    pictures = [row for row in rows if "pixel_values" in row]
    if pictures:
        batch["pixel_values"] = torch.cat([row["pixel_values"] for row in pictures]).to(torch.bfloat16)
        batch["image_grid_thw"] = torch.cat([row["image_grid_thw"] for row in pictures])
    return batch


def make_model() -> Qwen2_5_VLForConditionalGeneration:
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4}
    text = {**sizes, "num_hidden_layers": 2, "num_key_value_heads": 2, "vocab_size": WORDS}
    text["rope_scaling"] = {"type": "mrope", "mrope_section": [2, 3, 3]}
    vision = {"hidden_size": 64, "intermediate_size": 128, "num_heads": 4, "depth": 2, "out_hidden_size": 64}
    vision["fullatt_block_indexes"] = [1]
    ids = {"image_token_id": IMAGE, "vision_start_token_id": VISION_START, "video_token_id": 3, "pad_token_id": PAD}
    set_seed(0)
    return Qwen2_5_VLForConditionalGeneration(Qwen2_5_VLConfig(text_config=text, vision_config=vision, **ids))


def make_row(model: Any, number: int) -> Row:
    """Words, and in three of four rows one or two pictures before them: a token stands for 4 of their patches."""
    generator = torch.Generator().manual_seed(number)

    def drawn(least: int, most: int) -> int:
        return int(torch.randint(least, most, (), generator=generator))

    grids = [[1, SIDES[drawn(0, 3)], SIDES[drawn(0, 3)]] for _ in range(number % 4 and drawn(1, 3))]
    ids = [token for _, rows, columns in grids for token in (VISION_START, *[IMAGE] * (rows * columns // 4))]
    labels = [-100] * len(ids)
    words = torch.randint(10, WORDS, (drawn(3, 30),), generator=generator).tolist()
    row = {"input_ids": torch.tensor(ids + words), "labels": torch.tensor(labels + words)}
    row["attention_mask"] = torch.ones_like(row["input_ids"])
    pictures: Row = {}
    if grids:
        patches = sum(rows * columns for _, rows, columns in grids)
        pictures["image_grid_thw"] = torch.tensor(grids)
        pictures["pixel_values"] = torch.randn(patches, 3 * 2 * 14 * 14, generator=generator)
    if grids:
        kinds = {"mm_token_type_ids": (row["input_ids"] == IMAGE).int()[None]}  # from transformers 5 on
        asked = kinds if "mm_token_type_ids" in inspect.signature(model.get_rope_index).parameters else {}
        grid = {"image_grid_thw": pictures["image_grid_thw"]}
        row["position_ids"] = model.get_rope_index(row["input_ids"][None], **asked, **grid)[0]
    else:
        row["position_ids"] = torch.arange(len(labels + words)).repeat(3, 1, 1)
    return row | pictures


def losses_of(collate: Callable[[Rows], Any], rows: Rows, options: argparse.Namespace) -> list[float]:
    """The loss of each step of a training."""
    model = make_model().to(torch.float32)
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder, max_steps=options.steps, per_device_train_batch_size=options.batch_size, use_cpu=True,
            learning_rate=1e-3, logging_steps=1, save_strategy="no", report_to=[], disable_tqdm=True,
            ddp_find_unused_parameters=True, remove_unused_columns=False, dataloader_pin_memory=False,
        )  # fmt: skip
        trainer = Trainer(model, arguments, data_collator=collate, train_dataset=rows)
        trainer.remove_callback(PrinterCallback)
        trainer.train()
        return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


def main() -> int:
    parser = argparse.ArgumentParser(description="Fine-tune a small Qwen2.5-VL with two collators.")
    parser.add_argument("--rows", type=int, default=80, help="rows of the dataset (default: %(default)s)")
    parser.add_argument("--batch-size", type=int, default=4, help="rows of a batch (default: %(default)s)")
    parser.add_argument("--steps", type=int, default=10, help="training steps (default: %(default)s)")
    options = parser.parse_args()
    torch.set_num_threads(1)
    backend = Tokenizer(models.WordLevel({"[PAD]": PAD}, unk_token="[PAD]"))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, pad_token="[PAD]", padding_side="right")
    collator = quadrat.DataCollatorForSeq2Seq(
        tokenizer,
        join_columns=("pixel_values", "image_grid_thw"),
        pad_values={"position_ids": 1},
        pad_axes={"position_ids": -1},
        dtypes={"pixel_values": torch.bfloat16},
    )
    rows = [make_row(make_model().model, number) for number in range(options.rows)]
    for first in range(0, options.rows, options.batch_size):
        here = rows[first : first + options.batch_size]
        expected, batch = collate_by_hand(here), dict(collator(here))
        if expected.keys() != batch.keys() or not all(torch.equal(batch[name], expected[name]) for name in expected):
            print(f"The batch of rows from {first} on differs.", file=sys.stderr)
            return 1
    theirs, ours = losses_of(collate_by_hand, rows, options), losses_of(collator, rows, options)
    processes = torch.distributed.get_world_size() if torch.distributed.is_initialized() else 1
    if processes > 1 and torch.distributed.get_rank():
        return int(theirs != ours)
    shapes = {name: tuple(tensor.shape) for name, tensor in collator(rows[: options.batch_size]).items()}
    print(f"a batch: {shapes}")
    print(f"{-(-options.rows // options.batch_size)} batches are equal")
    print(f"loss of each step: {', '.join(f'{loss:.3f}' for loss in ours)}")
    if theirs != ours:
        print("The losses differ.", file=sys.stderr)
        return 1
    print(f"Equal losses at all {options.steps} steps, in {processes} process{'es' * (processes > 1)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
