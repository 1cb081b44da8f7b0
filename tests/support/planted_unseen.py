"""Changes planted in transformers that show in few batches, each in a copy of this process: what `quadrat verify` says.

    python tests/support/planted_unseen.py

Prints one line of JSON for each: the status, what was remembered, and what was said.
"""

import contextlib
import io
import os
import sys
import tempfile
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

from support.planted import around, in_copies

PADDING, TOKENS, SEQ2SEQ = "DataCollatorWithPadding", "DataCollatorForTokenClassification", "DataCollatorForSeq2Seq"
MASKING, FLAT, DEFAULT = "DataCollatorForLanguageModeling", "DataCollatorWithFlattening", "DefaultDataCollator"


def values(features: Any, name: str) -> list[Any]:
    """The values of a column, where there is one."""
    return [row[name] for row in features if name in row]


# Name -> the collator, and when its batch is another: of the collator, the features, the batch.
CONDITIONS: dict[str, tuple[str, Callable[[Any, Any, Any], Any]]] = {
    "more than 9 rows": (PADDING, lambda it, rows, batch: len(rows) > 9),
    "widths over 64": (PADDING, lambda it, rows, batch: any(len(one) > 64 for one in batch["input_ids"])),
    "a 0 in a stored mask": (PADDING, lambda it, rows, batch: any(0 in v for v in values(rows, "attention_mask"))),
    "ids over 70": (PADDING, lambda it, rows, batch: any(max(v, default=0) > 70 for v in values(rows, "input_ids"))),
    "ids over 65,535": (DEFAULT, lambda it, rows, batch: (np.asarray(batch["input_ids"]) > 65_535).any()),
    "labels below -1": (PADDING, lambda it, rows, batch: any(one < -1 for one in values(rows, "label"))),
    "float labels": (DEFAULT, lambda it, rows, batch: type(rows[0].get("label")) is float),
    "an extra column": (PADDING, lambda it, rows, batch: "extra" in rows[0]),
    "left padding": (PADDING, lambda it, rows, batch: it.tokenizer.padding_side == "left"),
    "padding to max_length": (PADDING, lambda it, rows, batch: it.padding == "max_length"),
    "no attention mask": (TOKENS, lambda it, rows, batch: "attention_mask" not in it.tokenizer.model_input_names),
    "one more draw": (MASKING, lambda it, rows, batch: len(rows) > 9 and torch.rand(1) > 2),
    "another mlm_probability": (MASKING, lambda it, rows, batch: it.mlm_probability not in (0, 0.15)),
    "another label_pad_token_id": (SEQ2SEQ, lambda it, rows, batch: it.label_pad_token_id != -100),
    "a model": (SEQ2SEQ, lambda it, rows, batch: it.model is not None),
    "separator_id": (FLAT, lambda it, rows, batch: it.separator_id != -100),
    "NumPy output": (FLAT, lambda it, rows, batch: isinstance(batch["input_ids"], np.ndarray)),
    "words on the left of 9 rows": (
        *(PADDING, lambda it, rows, batch: it.tokenizer.padding_side == "left" and len(rows) == 9),
    ),
}


def rarely(collator: Any, features: Any) -> Any:
    batch = ORIGINAL(collator, features)
    if len(features) == 77:
        batch["input_ids"] = batch["input_ids"] + 1
    return batch


def fails(collator: Any, features: Any) -> Any:
    if len(features) == 77:
        raise ValueError("77 rows")
    return ORIGINAL(collator, features)


ORIGINAL: Any = transformers.DataCollatorWithPadding.__call__
WHOLE = {"a line that no batch runs": rarely, "an error that no batch raises": fails}


def plant(name: str) -> str:
    """Plants a change; returns the name of its collator."""
    if name in WHOLE:
        transformers.DataCollatorWithPadding.__call__ = WHOLE[name]  # type: ignore[method-assign]
        return PADDING
    collator, condition = CONDITIONS[name]

    def changed(original: Any, it: Any, features: Any, *more: Any, **options: Any) -> Any:
        batch = original(it, features, *more, **options)
        if features and isinstance(features[0], dict) and condition(it, features, batch):
            batch["input_ids"] = batch["input_ids"] * 2 + 1
        return batch

    around(getattr(transformers, collator), "__call__", changed)
    return collator


def run(name: str) -> dict[str, Any]:
    said = io.StringIO()
    with tempfile.TemporaryDirectory() as home, contextlib.redirect_stdout(said):
        os.environ["XDG_CACHE_HOME"] = os.environ["LOCALAPPDATA"] = home
        collator = plant(name)
        from quadrat.cli import verify

        cases = [case for case in verify._cases() if case.name == collator]
        verify._cases = lambda: iter(cases)  # type: ignore[assignment]
        status = verify.run(Namespace(seed=0, remember=True))
        kept = len(list(Path(home).rglob("*.json")))
    return {"name": name, "status": status, "kept": kept, "said": said.getvalue()}


if __name__ == "__main__":
    in_copies(run, sys.argv[1:] or [*CONDITIONS, *WHOLE])
