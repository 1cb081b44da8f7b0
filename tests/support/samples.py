"""For each collator that the installed transformers has: options and a batch that it works on."""

import warnings
from collections.abc import Callable
from typing import Any

import transformers
from transformers import BatchEncoding

import quadrat
from quadrat.installed.originals import ORIGINALS
from support.strategies import make_tokenizer


def tokenizer() -> Any:
    special = make_tokenizer()
    special.mask_token = "w3"
    special.cls_token = special.sep_token = "w4"
    return special


def _rows(lengths: tuple[int, ...] = (5, 3, 6, 4), **columns: Callable[[int], Any]) -> list[dict[str, Any]]:
    return [
        {"input_ids": list(range(7 + n, 7 + 2 * n)), **{name: column(n) for name, column in columns.items()}}
        for n in lengths
    ]


_TOKENS = _rows(attention_mask=lambda n: [1] * n)
_EVEN = _rows((6, 6), score=lambda n: n / 4)
_CHOICES = [
    {"input_ids": [[5, 6, 7], [8 + row]], "attention_mask": [[1, 1, 1], [1]], "label": row % 2} for row in range(3)
]

# Name -> (options, features). Those with a tokenizer field get one.
SAMPLES: dict[str, tuple[dict[str, Any], list[Any]]] = {
    "DataCollatorForLanguageModeling": ({"seed": 3, "mlm_probability": 0.4}, _TOKENS),
    "DataCollatorForMultipleChoice": ({}, _CHOICES),
    "DataCollatorForPermutationLanguageModeling": ({}, _EVEN),
    "DataCollatorForSeq2Seq": ({"label_pad_token_id": -7}, _rows(labels=lambda n: list(range(n - 2)))),
    "DataCollatorForTokenClassification": ({"label_pad_token_id": -7}, _rows(labels=lambda n: [1] * n)),
    "DataCollatorForWholeWordMask": ({"seed": 3, "mlm_probability": 0.4}, _TOKENS),
    "DataCollatorWithFlattening": ({"return_flash_attn_kwargs": True, "return_seq_idx": True}, _rows()),
    "DataCollatorWithPadding": ({"pad_to_multiple_of": 4}, _rows(label=lambda n: n)),
    "DefaultDataCollator": ({}, _EVEN),
}
# With 5.x, `DataCollatorForWholeWordMask` is another `DataCollatorForLanguageModeling`: see test_whole_words.py.
CLASSES = sorted(name for name in ORIGINALS if "DataCollator" in name)
_WITHOUT_TOKENIZER = ("DataCollatorWithFlattening", "DefaultDataCollator")


def make(module: Any, name: str, **options: Any) -> Any:
    """`name` of a module (transformers or quadrat) with the options of `SAMPLES` and further ones."""
    arguments = () if name in _WITHOUT_TOKENIZER else (tokenizer(),)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # 4.x: whole-word masking is deprecated there
        return getattr(module, name)(*arguments, **{**SAMPLES[name][0], **options})


def batch(name: str) -> list[Any]:
    """Features for `name`, new ones each time."""
    return [BatchEncoding(feature).data.copy() for feature in SAMPLES[name][1]]


def source_of(name: str) -> str:
    """The other framework than torch that a collator makes batches for: multiple choice has none."""
    return "pt" if name == "DataCollatorForMultipleChoice" else "np"


def pair(name: str, **options: Any) -> list[Any]:
    """The reference's collator and quadrat's."""
    return [make(module, name, **options) for module in (transformers, quadrat)]


# These take rows of ids without a mapping around them, too.
BARE = [name for name in CLASSES if name.endswith(("LanguageModeling", "WordMask"))]
# Collators and the frameworks they make batches for.
BATCHES = [(name, framework) for name in CLASSES for framework in sorted({"pt", source_of(name)}, reverse=True)]
