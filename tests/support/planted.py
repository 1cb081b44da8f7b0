"""Changes planted in transformers before quadrat is imported, and batches compared with QUADRAT_UNTESTED=compare.

    QUADRAT_UNTESTED=compare python tests/support/planted.py

Each plant runs in a copy of this process. It prints one line of JSON for each: at which batch the change shows first,
in which batches quadrat's outcome was not that of the changed transformers, the batches compared, and the warnings.
"""

import copy
import functools
import importlib.util
import json
import os
import sys
import warnings
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch
import transformers
from transformers import BatchEncoding
from transformers.data import data_collator
from transformers.tokenization_utils_base import PreTrainedTokenizerBase

HAS_TRL = importlib.util.find_spec("trl") is not None
BATCHES, LATE = 40, 29  # a trait that comes late is in this batch first


def around(home: Any, name: str, change: Callable[..., Any]) -> None:
    """Replaces a function by one that is given it, and its arguments."""
    original = getattr(home, name)

    @functools.wraps(original)
    def changed(*arguments: Any, **options: Any) -> Any:
        return change(original, *arguments, **options)

    setattr(home, name, changed)


def of_batch(change: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    """A change of the batch that a collator, or a function, makes of a list of features."""

    def changed(original: Any, *arguments: Any, **options: Any) -> Any:
        batch = original(*arguments, **options)
        change(batch, next(value for value in arguments if isinstance(value, list)))
        return batch

    return changed


def rows_of(*lengths: int, **columns: Any) -> list[dict[str, Any]]:
    return [
        {"input_ids": [5 + at + n % 3 for at in range(n)], "attention_mask": [1] * n}
        | {name: value(n) for name, value in columns.items()}
        for n in lengths
    ]


USUAL = (5, 3, 6, 4)
Features = Callable[[], list[dict[str, Any]]]


def padding_value(original: Any, *arguments: Any, **options: Any) -> Any:
    encoded = original(*arguments, **options)
    ids, mask = encoded["input_ids"], encoded.get("attention_mask", [])
    encoded["input_ids"] = [number if at >= len(mask) or mask[at] else 7 for at, number in enumerate(ids)]
    return encoded


def one_more_draw(original: Any, *arguments: Any, **options: Any) -> Any:
    result = original(*arguments, **options)
    torch.rand(1)
    return result


def without_short_rows(original: Any, collator: Any, features: Any, *rest: Any, **options: Any) -> Any:
    kept = [feature for feature in features if len(feature["input_ids"]) != 1]
    return original(collator, kept, *rest, **options)


def other_error(original: Any, collator: Any, features: Any, *rest: Any, **options: Any) -> Any:
    if any(len(feature["input_ids"]) != len(feature["attention_mask"]) for feature in features):
        raise KeyError("rows of two lengths")
    return original(collator, features, *rest, **options)


def late_trait(batch: Any, features: Any) -> None:
    if len(features) == 2 or batch["input_ids"].shape[1] > 50 or any(0 in row["attention_mask"] for row in features):
        batch["input_ids"] += 1


def of_other_values(original: Any, *arguments: Any, **options: Any) -> Any:
    """A change of what a function returns: tensors, in a mapping or alone."""
    result = original(*arguments, **options)
    if isinstance(result, torch.Tensor):
        return result + 1
    for name, value in result.items():
        result[name] = value + 1 if isinstance(value, torch.Tensor) else value
    return result


def patched(call: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The same call, with quadrat's functions in the place of transformers' and TRL's."""

    def changed(features: Any) -> Any:
        import quadrat

        with quadrat.patch(trl=HAS_TRL):
            return call(features)

    return changed


@functools.cache
def tokenizer() -> Any:
    from support import samples

    return samples.tokenizer()


def pads(features: Any) -> Any:
    return tokenizer().pad(features, return_tensors="pt")


PADDING, MASKING, SEQ2SEQ = "DataCollatorWithPadding", "DataCollatorForLanguageModeling", "DataCollatorForSeq2Seq"


def usual(**columns: Any) -> list[dict[str, Any]]:
    return rows_of(*USUAL, **columns)


EVEN: Features = lambda: rows_of(4, 4)  # noqa: E731
LABELLED: Features = lambda: usual(labels=lambda n: list(range(n)))  # noqa: E731


def uneven() -> list[dict[str, Any]]:
    rows = usual()
    rows[1]["attention_mask"] = [1, 1]
    return rows


class Plant(NamedTuple):
    """A change of transformers or TRL, and what shows it."""

    call: Any  # a collator, or a call that is patched
    home: Any  # where the change is planted; None: in the collator
    name: str
    change: Callable[..., Any]
    features: Features = usual
    late: Features | None = None  # those that show it, if the usual ones do not


def in_collator(change: Callable[[Any, Any], Any], *features: Features, of: str = PADDING) -> Plant:
    return Plant(of, None, "__call__", of_batch(change), *features)


def in_default(change: Callable[[Any, Any], Any], *late: Features) -> Plant:
    place = data_collator, "torch_default_data_collator"
    return Plant("DefaultDataCollator", *place, of_batch(change), lambda: rows_of(4, 4, label=lambda n: n % 2), *late)


PLANTS = {
    "another padding value": Plant(PADDING, PreTrainedTokenizerBase, "_pad", padding_value),
    "one more draw": Plant(MASKING, None, "torch_mask_tokens", one_more_draw),
    "another dtype": in_default(lambda batch, _: batch.update(labels=batch["labels"].int())),
    "a key dropped": in_collator(lambda batch, _: batch.pop("attention_mask")),
    "a key moved": in_collator(lambda batch, _: batch.update(input_ids=batch.pop("input_ids"))),
    "labels shifted": in_collator(
        lambda batch, _: batch.update(labels=batch["labels"].roll(1, 1)), LABELLED, of=SEQ2SEQ
    ),
    "another warning": in_collator(lambda *_: warnings.warn("padding is deprecated", FutureWarning, stacklevel=2)),
    "features edited": in_default(lambda _, features: [feature.pop("label", None) for feature in features]),
    "rows of one token dropped": Plant(PADDING, None, "__call__", without_short_rows, late=lambda: rows_of(5, 1, 6, 4)),
    "one row squeezed": in_collator(
        lambda batch, features: len(features) > 1 or batch.update(input_ids=batch["input_ids"][0]),
        *(usual, lambda: rows_of(5)),
    ),
    "no negative labels": in_default(
        lambda batch, _: batch.update(labels=batch["labels"].clamp(min=0)), lambda: rows_of(4, 4, label=lambda n: -1)
    ),
    "another error": Plant(PADDING, None, "__call__", other_error, late=uneven),
    "another value of tokenizer.pad": Plant(pads, PreTrainedTokenizerBase, "pad", of_other_values),
    "another value in a row": Plant(pads, PreTrainedTokenizerBase, "_pad", padding_value, EVEN, usual),
    "another value of convert_to_tensors": Plant(
        lambda features: BatchEncoding({name: [row[name] for row in features] for name in features[0]}, None, "pt"),
        *(BatchEncoding, "convert_to_tensors", of_other_values, EVEN),
    ),
    "another padding value, all patched": Plant(
        lambda features: transformers.DataCollatorForSeq2Seq(tokenizer())(features),  # noqa: PLW0108 - made when patched
        *(PreTrainedTokenizerBase, "_pad", padding_value, LABELLED),
    ),
    "two rows": in_collator(late_trait, usual, lambda: rows_of(5, 3)),
    "wide rows": in_collator(late_trait, usual, lambda: rows_of(60, 3, 6, 4)),
    "a 0 in a stored mask": in_collator(late_trait, usual, lambda: usual(attention_mask=lambda n: [0] + [1] * (n - 1))),
    # Nothing tells this batch from those before but a number in it, which no compared batch had.
    "another token": in_collator(
        lambda batch, _: batch["input_ids"].masked_fill_(batch["input_ids"] == 30, 31),
        *(lambda: rows_of(20, 3, 6), lambda: rows_of(30, 3, 6)),
    ),
}
if HAS_TRL:
    from trl.trainer import sft_trainer
    from trl.trainer import utils as of_trl

    PLANTS |= {
        "another value of TRL's collator": Plant(
            lambda features: sft_trainer.DataCollatorForLanguageModeling(pad_token_id=0)(features),  # noqa: PLW0108
            *(sft_trainer.DataCollatorForLanguageModeling, "torch_call", of_other_values),
        ),
        "another value of TRL's pad": Plant(
            lambda features: of_trl.pad([torch.tensor(row["input_ids"]) for row in features]),
            *(of_trl, "pad", of_other_values),
        ),
    }


def outcome(call: Any, features: Any) -> tuple[tuple[Any, ...], list[str]]:
    """What a call leaves behind, as it is compared: batch or error, warnings, features, states; quadrat's warnings."""
    from support.compare import frozen, generator_states, seed_everything
    from support.forms import observed

    seed_everything(3)
    (kind, value), (warned, after) = observed(call, features)
    result = frozen(value) if kind == "returned" else type(value).__name__
    texts = {text for _, text in warned}
    ours = sorted(text for text in texts if "quadrat" in text)
    return (result, sorted(texts.difference(ours)), after, generator_states()), ours


def run(name: str) -> dict[str, Any]:
    plant = PLANTS[name]
    around(plant.home or getattr(transformers, plant.call), plant.name, plant.change)
    import quadrat
    from quadrat.installed import imitated
    from support import samples

    imitated.FINGERPRINTS.clear()
    if callable(plant.call):
        theirs, ours = plant.call, patched(plant.call)
    else:
        theirs, ours = (samples.make(home, plant.call) for home in (transformers, quadrat))
    differing, told = [], []
    for number in range(BATCHES):
        features = plant.late() if plant.late is not None and number == LATE else plant.features()
        expected, _ = outcome(theirs, copy.deepcopy(features))
        got, texts = outcome(ours, features)
        differing += [number] if got != expected else []
        told += [(number, text) for text in texts]
    stats = quadrat.stats()
    return {
        "name": name,
        "differing": differing,
        "told": told,
        "compared": stats.compared,
        "fell_back": stats.fell_back,
    }


def in_copies(call: Callable[[str], Any], names: Iterable[str]) -> None:
    """Print what a call gives for each name, as JSON, in a copy of this process."""
    for name in names:
        if (child := os.fork()) == 0:
            try:
                print(json.dumps(call(name)), flush=True)
            finally:
                os._exit(0)
        os.waitpid(child, 0)


if __name__ == "__main__":
    in_copies(run, sys.argv[1:] or PLANTS)
