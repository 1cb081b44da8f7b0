"""Everything that makes batches, as calls that can be made again and again: for tests of faults and of leaks."""

import copy
import random
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import datasets
import numpy as np
import torch
import transformers

import quadrat
from support import samples
from support.compare import frozen, seed_everything, state_of
from support.strategies import PadsInItsOwnWay, make_tokenizer


@dataclass
class Work:
    """A call that makes a batch.

    Attributes:
        name: what it is.
        call: makes a batch.
        collator: what has options and a generator of its own, and knows of earlier batches; None for a function.
        features: what the batch is made of.
        reference: the reference's collator with the same options, where there is one.
    """

    name: str
    call: Callable[[], Any]
    collator: Any = None
    features: Any = None
    reference: Any = None

    def forget(self) -> None:
        """Makes the next batch the first of its kind. The epoch, in shared memory, is as old as the collator."""
        if self.collator is not None:
            for name in vars(self.collator).keys() - {"_quadrat_epoch"}:
                if name.startswith("_quadrat"):
                    delattr(self.collator, name)


class States:
    """The states of all generators that a work may draw from: torch's, NumPy's, Python's and the collator's own."""

    def __init__(self, *collators: Any) -> None:
        self._collators = [collator for collator in collators if hasattr(collator, "generator")]

    def take(self) -> tuple[Any, ...]:
        states = [state_of(collator.generator) for collator in self._collators]
        return torch.get_rng_state(), np.random.get_state(), random.getstate(), states

    def restore(self, state: tuple[Any, ...]) -> None:
        torch.set_rng_state(state[0])
        np.random.set_state(state[1])
        random.setstate(state[2])
        for collator, generator_state in zip(self._collators, state[3], strict=True):
            if isinstance(generator_state, torch.Tensor):
                collator.generator.set_state(generator_state)
            elif generator_state is None:
                collator.generator = None
            else:
                collator.generator.bit_generator.state = generator_state

    @staticmethod
    def same(first: tuple[Any, ...], second: tuple[Any, ...]) -> list[bool]:
        return [frozen(a) == frozen(b) for a, b in zip(first, second, strict=True)]


def of_collator(name: str, collator: Any, features: Any, *, reference: Any = None) -> Work:
    inputs = copy.deepcopy(features) if type(features) is list else features  # references to the samples come and go
    return Work(name, lambda: collator(inputs), collator, inputs, reference)


def collators() -> Iterator[Work]:
    for name, framework in samples.BATCHES:
        reference, collator = samples.pair(name, return_tensors=framework)
        yield of_collator(f"{name}, {framework}", collator, samples.batch(name), reference=reference)


def collators_with_options() -> Iterator[Work]:
    """Collators with options and inputs that take other ways."""
    for name in samples.CLASSES:
        features = samples.batch(name)
        if hasattr(samples.make(quadrat, name), "deferred"):
            deferred = samples.make(quadrat, name, deferred=True)
            yield of_collator(f"{name}, deferred", deferred, features)
        rows = quadrat.ArrowDataset(datasets.Dataset.from_list(features))
        yield of_collator(f"{name}, ArrowDataset", samples.make(quadrat, name), rows.__getitems__(range(len(features))))
    names = {"lists": list, "arrays": np.array, "tensors": torch.tensor}
    for form, make in names.items():
        features = [{key: make(value) for key, value in row.items()} for row in samples.batch("DataCollatorForSeq2Seq")]
        for framework in ("pt", "np"):
            collator = samples.make(quadrat, "DataCollatorForSeq2Seq", return_tensors=framework)
            if form != "lists" and (form, framework) != ("tensors", "np"):
                yield of_collator(f"DataCollatorForSeq2Seq, {form}, {framework}", collator, features)
    language = "DataCollatorForLanguageModeling"
    rows = samples.batch(language)
    words = [{**row, "word_ids": [position // 2 for position in range(len(row["input_ids"]))]} for row in rows]
    sure = {"whole_word_mask": True, "mask_replace_prob": 1.0, "random_replace_prob": 0.0}
    yield of_collator(f"{language}, word_ids", samples.make(quadrat, language, **sure), words)
    for deferred in (False, True):
        philox = samples.make(quadrat, language, rng="philox", deferred=deferred)
        keyed = [{**row, "row_key": number} for number, row in enumerate(rows)]
        yield of_collator(f"{language}, philox{', deferred' * deferred}", philox, keyed)
    yield of_collator(f"{language}, mlm=False", samples.make(quadrat, language, mlm=False, seed=None), rows)
    extra = [{**row, "further": row["input_ids"]} for row in rows]
    padding = quadrat.DataCollatorWithPadding(make_tokenizer(), pad_values={"further": 3})
    yield of_collator("DataCollatorWithPadding, pad_values", padding, extra)
    fallback = quadrat.DataCollatorWithPadding(make_tokenizer(cls=PadsInItsOwnWay))
    yield of_collator("DataCollatorWithPadding, fell back", fallback, rows)
    held = [{**row, "box": [[1, 2], [3, 4]]} for row in rows]
    yield of_collator("DataCollatorWithPadding, nested", quadrat.DataCollatorWithPadding(make_tokenizer()), held)
    yield of_collator("default_data_collator", quadrat.default_data_collator, samples.batch("DefaultDataCollator"))


def functions() -> Iterator[Work]:
    rows = [list(range(3, 3 + n)) for n in (5, 0, 7, 300)]
    arrays, tensors = [np.array(row) for row in rows], [torch.tensor(row) for row in rows]
    ragged = quadrat.Ragged.from_rows(rows)
    calls: dict[str, Callable[[], Any]] = {}
    for form, some in {"lists": rows, "arrays": arrays, "tensors": tensors, "Ragged": ragged}.items():
        calls[f"pad, {form}"] = lambda some=some: quadrat.pad(some, padding_value=1)
        calls[f"flatten, {form}"] = lambda some=some: quadrat.flatten(some)
    calls["Ragged.from_rows"] = lambda: quadrat.Ragged.from_rows(rows)
    calls["Ragged, taken"] = lambda: quadrat.Ragged.from_rows(arrays)[[2, 0, 2]]
    calls["Ragged, rows"] = lambda: [row.tolist() for row in ragged]
    padded, mask = quadrat.pad(tensors), quadrat.attention_mask([5, 0, 7, 300], return_tensors="pt")
    calls["unpad, lengths"] = lambda: quadrat.unpad(padded, lengths=[5, 0, 7, 300])
    calls["unpad, mask"] = lambda: quadrat.unpad(padded, mask=mask)
    calls["attention_mask"] = lambda: quadrat.attention_mask([5, 0, 7, 300])
    ids: dict[str, Any] = {"mask_token_id": 3, "vocab_size": 400}
    by_counter = {**ids, "rng": "philox", "seed": 4, "lengths": [5, 0, 7, 300]}
    calls["mask_tokens, torch"] = lambda: quadrat.mask_tokens(padded, **ids)
    calls["mask_tokens, NumPy"] = lambda: quadrat.mask_tokens(padded.numpy(), **ids)
    calls["mask_tokens, philox"] = lambda: quadrat.mask_tokens(padded, **by_counter)
    calls["concat_padded"] = lambda: quadrat.evaluation.concat_padded([padded[:, :7], padded[:, :9]])
    encoding, of_tokenizers = {"input_ids": [[1, 2], [3, 4]], "label": [1, 2]}, quadrat.tokenizers
    calls["convert_to_tensors"] = lambda: of_tokenizers.convert_to_tensors(transformers.BatchEncoding(encoding), "pt")
    tokenizer, columns = samples.tokenizer(), {"input_ids": rows[:1] + rows[2:3]}
    calls["tokenizer_pad"] = lambda: of_tokenizers.tokenizer_pad(tokenizer, columns, verbose=False)
    calls["lengths"] = lambda: quadrat.lengths(rows)
    calls["pack"] = lambda: quadrat.batching.plan_packs([5, 0, 7, 300], 310)
    lengths = np.arange(1, 200) % 37 + 1
    budget = quadrat.TokenBudgetBatchSampler(lengths, 200)
    calls["TokenBudgetBatchSampler"] = lambda: list(budget)
    calls["LengthGroupedSampler"] = lambda: list(quadrat.batching.LengthGroupedSampler(4, lengths=lengths.tolist()))
    table = datasets.Dataset.from_list(samples.batch("DataCollatorWithPadding") * 3)
    stored = quadrat.ArrowDataset(table)
    calls["ArrowDataset, rows"] = lambda: [dict(row) for row in stored.__getitems__([3, 1, 2])]
    batched = quadrat.data.BatchedDataset(table, [[0, 1], [2, 3]])
    collator = quadrat.DataCollatorWithPadding(samples.tokenizer())
    calls["BatchedDataset"] = lambda: collator([batched[1]])
    packed = quadrat.PackedDataset(table, 20, columns=["input_ids"])
    flattening = quadrat.DataCollatorWithFlattening()
    calls["PackedDataset"] = lambda: flattening([packed[0]])
    deferring = quadrat.DataCollatorForSeq2Seq(samples.tokenizer(), deferred=True)
    calls["DeferredBatch.to"] = lambda: deferring(samples.batch("DataCollatorForSeq2Seq")).to("cpu")
    calls["EvalLoopContainer"] = lambda: gathered(padded)
    calls["DistributedTensorGatherer"] = lambda: gathered_by_two(padded.numpy())
    for name, call in calls.items():
        yield Work(name, call)


def gathered(padded: torch.Tensor) -> Any:
    container = quadrat.evaluation.EvalLoopContainer()
    for width in (3, 300, 7):
        container.add((padded[:, :width], padded[:, 0]))
    return container.get_arrays()


def gathered_by_two(padded: np.ndarray) -> Any:
    gatherer = quadrat.evaluation.DistributedTensorGatherer(2, 8)
    for _ in range(2):
        gatherer.add_arrays(padded)
    return gatherer.finalize()


def everything() -> list[Work]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [*collators(), *collators_with_options(), *functions()]


def picture(value: Any) -> Any:
    """A comparable picture of whatever a work returns."""
    value = value.to("cpu") if isinstance(value, quadrat.deferred.DeferredBatch) else value
    return frozen((value.values, value.offsets) if isinstance(value, quadrat.Ragged) else value)


def seed(collator: Any) -> None:
    seed_everything(5)
    generator = getattr(collator, "generator", None)
    if isinstance(generator, torch.Generator):
        generator.manual_seed(5)
