"""Threads that share a collator, change features while they are collated, and patch while others collate."""

import collections
import random
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
import transformers

import quadrat
from support import samples, works
from support.faults import row
from support.threads import together

THREADS = 4


def shared(quick: bool) -> Iterator[str]:
    """Threads that collate with one collator; half of the times each makes the first batch of its kind."""
    batches = 100 if quick else 2000
    for work in [*works.collators(), *works.collators_with_options()]:
        draws = not (_repeats(work))
        expected = works.picture(work.call())

        def many(work: works.Work = work, expected: Any = expected, draws: bool = draws) -> int:
            for number in range(batches):
                if number % 20 == 0:
                    vars(work.collator).pop("_quadrat_pt", None)
                    vars(work.collator).pop("_quadrat_recipes", None)
                assert draws or works.picture(work.call()) == expected, f"{work.name}: another batch"
            return batches

        count = sum(together(*[many] * THREADS))
        text = "no error (what is drawn depends on the threads' order)" if draws else "all right"
        yield row(f"{THREADS} threads: {work.name}", count, text)


def _repeats(work: works.Work) -> bool:
    # Of the drawn batches of one row, a third may be equal.
    return len({repr(works.picture(work.call())) for _ in range(50)}) == 1


def changing(quick: bool) -> Iterator[str]:
    """Threads that change features, rows and arrays while others collate them."""
    batches = 150 if quick else 5000
    for form, make in {"lists": list, "arrays": np.array, "tensors": torch.tensor}.items():
        for name in samples.CLASSES:
            if name != "DataCollatorForMultipleChoice" or form == "lists":
                yield _changing(name, form, make, batches)


def _changing(name: str, form: str, make: Callable[[Any], Any], batches: int) -> str:
    collator = samples.make(quadrat, name)
    features = [
        {key: make(value) if isinstance(value, list) else value for key, value in row.items()}
        for row in samples.batch(name)
    ]
    collator(samples.batch(name))  # which makes its generator, where it has a seed
    expected = works.picture(_from_anew(collator, name))
    outcomes: collections.Counter[str] = collections.Counter()
    stop = threading.Event()

    def collate() -> None:
        try:
            for _ in range(batches):
                try:
                    collator(features)
                    outcomes["batches"] += 1
                except Exception as error:
                    outcomes[type(error).__name__] += 1
        finally:
            stop.set()

    def change() -> None:
        generator = random.Random(threading.get_ident())
        while not stop.is_set():
            _change(generator, features, make)

    together(collate, change, change)
    assert works.picture(_from_anew(collator, name)) == expected, f"{name}: the next batch is another"
    text = ", ".join(f"{count:,} {kind}" for kind, count in outcomes.most_common())
    return row(f"features change, {form}: {name}", batches, text)


def _from_anew(collator: Any, name: str) -> Any:
    works.seed(collator)
    return collator(samples.batch(name))


def _change(generator: random.Random, features: list[Any], make: Callable[[Any], Any]) -> None:
    """Makes one row longer or shorter, another number, another object; or takes a row out and puts one back."""
    try:
        row = generator.choice(features)
        name = generator.choice(list(row))
        value, action = row[name], generator.randrange(6)
        if action == 0:
            features.append(features.pop(0))
        elif action == 1:
            row[name] = row.pop(name)
        elif isinstance(value, list):
            if action < 4 and value:
                value.append(value.pop(0))
            elif len(value) < 50:
                value.extend([7] * 20)
            else:
                del value[4:]
        elif isinstance(value, (np.ndarray, torch.Tensor)) and value.ndim:
            # Another one in its place, so that this one is freed. Resizing it would free memory that a reader without
            # the GIL, torch as well as quadrat, still copies.
            row[name] = make([5] * generator.randrange(1, 3000))
            value[:] = 6
    except (IndexError, KeyError, ValueError, RuntimeError):
        pass  # another thread was faster


def patched(quick: bool) -> Iterator[str]:
    """Threads that patch transformers and undo it, while others collate by the names of transformers."""
    times = 15 if quick else 500
    name = "DataCollatorWithPadding"
    before = getattr(transformers, name)
    features = samples.batch(name)
    expected = works.picture(samples.make(transformers, name)(features))
    stop = threading.Event()
    counts: collections.Counter[str] = collections.Counter()

    def patch() -> None:
        try:
            for _ in range(times):
                with quadrat.patch_transformers():
                    counts["patched"] += 1
        finally:
            stop.set()

    def collate() -> None:
        tokenizer = samples.tokenizer()
        while not stop.is_set():
            collator = getattr(transformers, name)(tokenizer, pad_to_multiple_of=4)
            for _ in range(5):
                assert works.picture(collator(features)) == expected
                counts[type(collator).__module__.partition(".")[0]] += 1

    together(patch, patch, collate, collate)
    assert getattr(transformers, name) is before
    batches = f"{counts['transformers']:,} batches of transformers, {counts['quadrat']:,} of quadrat, all right"
    yield row("patched and undone while others collate", counts["patched"], batches)
