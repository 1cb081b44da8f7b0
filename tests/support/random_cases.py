"""Batches of random options and rows, made by quadrat and by the installed transformers, and compared to the bit.

    python tests/support/random_cases.py [NUMBER]

`make release` runs it with an installed wheel. It makes NUMBER batches of each collator and of `tokenizer_pad`: of all
options, and of rows of the sizes at which code may branch. The exit status is 1 if a batch differs.
"""

import contextlib
import dataclasses
import functools
import inspect
import os
import sys
import warnings
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, TypeAlias

import numpy as np

from quadrat.installed.originals import ORIGINALS

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
}


def _shifted(labels: Any) -> Any:
    return labels * 1 if isinstance(labels, np.ndarray) else labels.roll(1, -1)


_MODEL = SimpleNamespace(prepare_decoder_input_ids_from_labels=_shifted)


def options(rng: Rng, call: Any) -> dict[str, Any]:
    """Options of a class or function, many of them not the default."""
    from transformers.utils.generic import PaddingStrategy

    known = _VALUES | {"tokenizer": tokenizers(), "model": (_MODEL,)}
    known["padding"] = *known["padding"], PaddingStrategy.LONGEST, PaddingStrategy.MAX_LENGTH
    values = {}
    for name, default in defaults(call).items():
        if name in known:
            values[name] = pick(rng, known[name] if default is _NONE else (default, *known[name]))
    return values


def defaults(call: Any) -> dict[str, Any]:
    """The options of a class or function, and their defaults; of a class, those of its bases, too."""
    fields = dataclasses.fields(call) if dataclasses.is_dataclass(call) else ()
    values = {field.name: field.default if field.default is not dataclasses.MISSING else _NONE for field in fields}
    return values | {name: parameter.default for name, parameter in inspect.signature(call).parameters.items()}


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
    instances = []
    for cls, side, names in (
        (PreTrainedTokenizerFast, "right", ["input_ids", "token_type_ids", "attention_mask"]),
        (PreTrainedTokenizerFast, "left", ["input_ids", "attention_mask"]),
        (slow, "right", ["input_ids"]),
    ):
        instances.append(cls(tokenizer_object=model, padding_side=side, **special))
        instances[-1].model_input_names = names
    return tuple(instances)


def lengths(rng: Rng, *, most: int = 20_000, equal: bool = False, even: bool = False, choices: int = 1) -> list[int]:
    """The lengths of the rows of a batch, at most about `most` tokens with padding."""
    rows = pick(rng, _ROWS) * choices
    widest = min(pick(rng, _WIDTHS), max(most // rows, 1))
    sizes = np.full(rows, widest) if equal or rng.integers(4) == 0 else rng.integers(1, widest + 1, rows)
    sizes[rng.integers(rows)] = widest
    if not equal and rng.integers(8) == 0:
        sizes[rng.integers(rows)] = 0
    return [int(size) + int(size) % 2 * even for size in sizes]


def _square(rng: Rng, length: int) -> Any:
    """A mask of pairs of tokens, of short rows."""
    import torch

    mask = np.tri(length, dtype=np.int64)
    return [1] * length if length > 20 else pick(rng, (torch.from_numpy, np.array))(mask)


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
    table: dict[str, list[Any]] = {}
    for name, kinds in columns.items():
        if (kind := pick(rng, kinds)) is not None:
            values = [_KINDS[kind](rng, length) for length in sizes]
            table[name] = [form(value) if type(value) is list and value else value for value in values]
    if choices:
        table = {
            name: [list(row) for row in zip(*[iter(values)] * choices, strict=True)] for name, values in table.items()
        }
        table["label"] = [_KINDS["int"](rng, 0) for _ in table["input_ids"]]
    rows = [dict(zip(table, row, strict=True)) for row in zip(*table.values(), strict=True)]
    if rng.random() < broken:
        return pick(rng, ([], [{**row, "label": "text"} for row in rows], [{"other": [1]} for _ in rows]))  # type: ignore[no-any-return]
    return rows


_PADDED: Columns = {
    "input_ids": ("ids",),
    "attention_mask": (None, None, "ones", "ones", "bits", "bits", "square"),
    "token_type_ids": (None, None, "bits"),
    "special_tokens_mask": (None, None, "bits"),
}
_LABELS: Columns = {"label": (None, "int", "float"), "label_ids": (None, None, "int", "float")}
_EXTRA: Columns = {"extra": (None, None, None, "int", "float", "marks")}
_TARGETS: Columns = {"labels": (None, "target", "target", "none"), "label": (None, "target")}
# Of each collator: columns, options of `lengths`, and of `features`.
COLLATORS: dict[str, tuple[Columns, dict[str, Any], dict[str, Any]]] = {
    "DataCollatorWithPadding": (_PADDED | _LABELS | _EXTRA, {}, {}),
    "DataCollatorForTokenClassification": ({**_PADDED, "labels": (None, "marks"), "label": (None, "marks")}, {}, {}),
    "DataCollatorForSeq2Seq": (_PADDED | _EXTRA | _TARGETS, {}, {}),
    "DataCollatorForLanguageModeling": ({**_PADDED, "offset_mapping": (None, "words")}, {"most": 3000}, {}),
    "DataCollatorForWholeWordMask": ({"input_ids": ("ids",), "chinese_ref": (None, "places")}, {"most": 3000}, {}),
    "DataCollatorForPermutationLanguageModeling": ({"input_ids": ("ids",)}, {"most": 700, "even": True}, {}),
    "DataCollatorForMultipleChoice": (_PADDED, {"choices": 2}, {"choices": 2}),
    "DataCollatorWithFlattening": ({"input_ids": ("ids",), "labels": (None, "marks")}, {}, {"lists": True}),
    "DefaultDataCollator": ({**_PADDED, **_LABELS, **_EXTRA, "text": (None, "text", "none")}, {"equal": True}, {}),
}


def run_collator(rng: Rng, name: str) -> None:
    """One batch of a new collator of random options."""
    import quadrat

    cls, (columns, sizes, how) = getattr(quadrat, name), COLLATORS[name]
    arguments = options(rng, ORIGINALS[name])
    if arguments.get("whole_word_mask"):  # transformers has no whole words with padding, and quadrat has
        arguments, sizes = arguments | {"pad_to_multiple_of": None}, sizes | {"equal": True}
    cls(**arguments)(features(rng, columns, lengths(rng, **sizes), **how))


def run_pad(rng: Rng) -> None:
    """One call of `tokenizer_pad`."""
    from quadrat.tokenizers import tokenizer_pad

    tokenizer = pick(rng, tokenizers())
    rows = features(rng, _PADDED | _LABELS | _EXTRA, lengths(rng))
    tokenizer_pad(tokenizer, rows, **options(rng, type(tokenizer).pad))


def main(number: int = 200) -> int:
    """Make the batches; returns the exit status."""
    os.environ["QUADRAT_UNTESTED"] = "compare"
    from quadrat import stats
    from quadrat.installed import imitated

    imitated.FINGERPRINTS.clear()  # no code is known, and all of it is compared
    rng = np.random.default_rng(0)
    calls = {name: functools.partial(run_collator, rng, name) for name in COLLATORS if name in ORIGINALS}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, call in {**calls, "tokenizer.pad": functools.partial(run_pad, rng)}.items():
            before = stats().compared
            for _ in range(number):
                with contextlib.suppress(Exception):  # of both
                    call()
            print(f"{name}: {stats().compared - before} of {number} batches compared")
    print(*imitated.DIFFERENCES.values() or ["all are equal"], sep="\n")
    return int(bool(imitated.DIFFERENCES))


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
