"""Drawn options, tokenizers and features: all options of a collator, and rows of the sizes at which code may branch."""

import contextlib
import dataclasses
import functools
import inspect
import multiprocessing
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, TypeAlias

import numpy as np

from quadrat.support.around import replaced

VOCABULARY = 70_000
_SPECIAL = "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"
_ROWS = 1, 2, 3, 9, 10, 65
_WIDTHS = 1, 2, 7, 8, 9, 63, 64, 65, 511, 512, 513
_ROOM = 600  # of `max_length`: more than the widest row
_NONE = inspect.Parameter.empty
_BROKEN = 1 / 30  # the part of the batches that are drawn to fail

Rng: TypeAlias = np.random.Generator
Columns: TypeAlias = dict[str, tuple[Any, ...]]  # of each, kinds to choose from; None: no column

# What options are drawn from, besides their defaults; those of a class that are not here keep them.
_VALUES: dict[str, tuple[Any, ...]] = {
    "padding": (True, "longest", "max_length", False),
    "max_length": (_ROOM, _ROOM, 43),
    "pad_to_multiple_of": (8, 5),
    "padding_side": ("left", "right"),
    "return_attention_mask": (True, False),
    "return_tensors": ("pt", "np"),
    "tensor_type": ("pt", "np"),
    "prepend_batch_axis": (True,),
    "label_pad_token_id": (-7,),
    "mlm": (False,),
    "whole_word_mask": (True,),
    "mlm_probability": (0.4, 0, 1),
    "mask_replace_prob": (0.5, 1),
    "random_replace_prob": (0.2, 0),
    "seed": (3,),
    "plm_probability": (0.3,),
    "max_span_length": (3,),
    "return_position_ids": (True, False),
    "separator_id": (-1,),
    "return_flash_attn_kwargs": (True,),
    "return_seq_idx": (True,),
    "position_ids_start": (2,),
    "truncation": (True,),
    "pad_token_id": (0, 7),
    "completion_only_loss": (True, False),
    "padding_free": (True,),
    "truncation_mode": ("keep_end",),
    "padding_value": (-100, 0.5),
}


def _shifted(labels: Any) -> Any:
    return labels * 1 if isinstance(labels, np.ndarray) else labels.roll(1, -1)


_MODEL = SimpleNamespace(prepare_decoder_input_ids_from_labels=_shifted)


def options(rng: Rng, call: Any) -> dict[str, Any]:
    """Options of a class or function, many of them not the default."""
    from transformers.utils.generic import PaddingStrategy

    known = _VALUES | {"tokenizer": tokenizers(), "model": (_MODEL,)}
    known["padding"] = *known["padding"], PaddingStrategy.LONGEST, PaddingStrategy.MAX_LENGTH
    made = {}
    for name, default in defaults(call).items():
        if name in known:
            made[name] = pick(rng, known[name] if default is _NONE else (default, *known[name]))
    return made


def defaults(call: Any) -> dict[str, Any]:
    """The options of a class or function, and their defaults; of a class, those of its bases, too."""
    fields = dataclasses.fields(call) if dataclasses.is_dataclass(call) else ()
    made = {one.name: one.default if one.default is not dataclasses.MISSING else _NONE for one in fields}
    return made | {name: one.default for name, one in inspect.signature(call).parameters.items()}


def pick(rng: Rng, choices: Any) -> Any:
    """One of some choices."""
    return choices[int(rng.integers(len(choices)))]


@functools.cache
def tokenizers() -> tuple[Any, ...]:
    """A tokenizer as usual; one that pads on the left, without type ids; one whose models take no mask."""
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    words = (*_SPECIAL, *(f"{'##' * (number % 3 == 1)}w{number}" for number in range(VOCABULARY - len(_SPECIAL))))
    model = Tokenizer(models.WordLevel({word: number for number, word in enumerate(words)}, unk_token="[UNK]"))
    special = {f"{name[1:-1].lower()}_token": name for name in _SPECIAL}
    slow = type("SlowTokenizer", (PreTrainedTokenizerFast,), {"is_fast": False})
    made = []
    for cls, side, names in (
        (PreTrainedTokenizerFast, "right", ["input_ids", "token_type_ids", "attention_mask"]),
        (PreTrainedTokenizerFast, "left", ["input_ids", "attention_mask"]),
        (slow, "right", ["input_ids"]),
    ):
        made.append(cls(tokenizer_object=model, padding_side=side, **special))
        made[-1].model_input_names = names
    return tuple(made)


def in_worker() -> contextlib.AbstractContextManager[None]:
    """As in a worker of a `DataLoader`, which seeds generators in its own way."""
    from torch.utils.data._utils import worker

    info = SimpleNamespace(id=1)
    return replaced((multiprocessing.current_process(), "name", "Worker"), (worker, "_worker_info", info))


def lengths(rng: Rng, *, most: int = 20_000, equal: bool = False, even: bool = False, choices: int = 1) -> list[int]:
    """The lengths of the rows of a batch, at most about `most` tokens with padding."""
    rows = pick(rng, _ROWS) * choices
    widest = min(pick(rng, _WIDTHS), max(most // rows, 1))
    made = np.full(rows, widest) if equal or rng.integers(4) == 0 else rng.integers(1, widest + 1, rows)
    made[rng.integers(rows)] = widest
    if not equal and rng.integers(8) == 0:
        made[rng.integers(rows)] = 0
    return [int(one) + int(one) % 2 * even for one in made]


def _square(rng: Rng, length: int) -> Any:
    """A mask of pairs of tokens, of short rows."""
    import torch

    made = np.tri(length, dtype=np.int64)
    return [1] * length if length > 20 else pick(rng, (torch.from_numpy, np.array))(made)


def _words(rng: Rng, length: int) -> list[list[int]]:
    """Where words begin and end in a text; some tokens continue the word before."""
    ends = np.cumsum(rng.integers(2, 5, length))
    return np.stack([np.roll(ends, 1) * rng.integers(0, 2, length), ends], 1).tolist()  # type: ignore[no-any-return]


# What makes the value of a row with so many tokens, by kind of column.
_KINDS: dict[str, Callable[[Rng, int], Any]] = {
    "ids": lambda rng, n: rng.integers(pick(rng, (0, len(_SPECIAL))), pick(rng, (70, VOCABULARY)), n).tolist(),
    "ones": lambda rng, n: [1] * n,
    "bits": lambda rng, n: rng.integers(0, 2, n).tolist(),
    "square": _square,
    "marks": lambda rng, n: rng.integers(-100, 9, n).tolist(),
    "target": lambda rng, n: rng.integers(-100, 9, n % 7 + 1).tolist(),
    "places": lambda rng, n: rng.integers(0, max(n, 1), 4).tolist(),
    "words": _words,
    "documents": lambda rng, n: [n // 2, n - n // 2] if n > 1 else [n],
    "sound": lambda rng, n: rng.random(n).tolist(),
    "int": lambda rng, n: int(rng.integers(-5, 5)),
    "float": lambda rng, n: float(rng.integers(-9, 9)) / 4,
    "text": lambda rng, n: "text",
    "none": lambda rng, n: None,
}


def features(
    rng: Rng, columns: Columns, sizes: list[int], *, choices: int = 0, lists: bool = False, broken: float = _BROKEN
) -> list[Any]:
    """Rows of drawn columns: lists, arrays or tensors; with choices, so many rows for each column of each example."""
    import torch

    forms: tuple[Callable[[list[int]], Any], ...] = (list, list, np.array, torch.tensor)
    form = list if lists or choices else pick(rng, forms)
    made: dict[str, list[Any]] = {}
    for name, kinds in columns.items():
        if (kind := pick(rng, kinds)) is not None:
            values = [_KINDS[kind](rng, length) for length in sizes]
            made[name] = [form(one) if type(one) is list and one else one for one in values]
    if choices:
        made = {
            name: [list(one) for one in zip(*[iter(values)] * choices, strict=True)] for name, values in made.items()
        }
        made["label"] = [_KINDS["int"](rng, 0) for _ in made["input_ids"]]
    rows = [dict(zip(made, row, strict=True)) for row in zip(*made.values(), strict=True)]
    if rng.random() < broken:
        return pick(rng, ([], [{**row, "label": "text"} for row in rows], [{"other": [1]} for _ in rows]))  # type: ignore[no-any-return]
    return rows
