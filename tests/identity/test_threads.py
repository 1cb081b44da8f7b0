"""Collators and containers that sixteen threads share, and rows that other threads edit meanwhile."""

import itertools
import random
import sys
import threading
from collections.abc import Callable
from typing import Any

import datasets
import numpy as np
import pytest
import torch
import transformers

import quadrat
from quadrat.input import items
from quadrat.installed.behaviour import flattening_takes_arrays
from quadrat.integration import switch
from quadrat.planning import compared
from quadrat.support import generators
from support import samples, works
from support.compare import seed_everything
from support.isolated import told
from support.strategies import make_tokenizer
from support.threads import THREADS, everywhere, together

pytestmark = pytest.mark.same_everywhere
NAMES = [name for name in samples.CLASSES if "Mask" not in name and "LanguageModeling" not in name]  # others draw


@pytest.mark.parametrize("name", NAMES)
def test_one_collator(name):
    """All threads begin with a kind of batch that the collator does not know yet."""
    collator = samples.make(quadrat, name)
    expected = works.picture(samples.make(quadrat, name)(samples.batch(name)))

    def collate(_: int) -> bool:
        return all(works.picture(collator(samples.batch(name))) == expected for _ in range(20))

    assert everywhere(collate) == [True] * THREADS


def test_kinds_of_batches_in_another_order_in_each_thread():
    """Threads add plans for their kinds to the collator at the same time; some kinds fall back, some fail at times."""
    rows = [list(range(7, 7 + length)) for length in (5, 3, 6)]
    ids = [{"input_ids": row} for row in rows]
    kinds = [
        ids,
        [{"input_ids": np.array(row)} for row in rows],
        [{"input_ids": torch.tensor(row, dtype=torch.int32)} for row in rows],
        [{"input_ids": row, "label": len(row)} for row in rows],
        [{"input_ids": row, "score": score} for row, score in zip(rows, (1, 0.5, 2), strict=True)],
        [{"input_ids": row, "score": score} for row, score in zip(rows, (1, 2, 0.5), strict=True)],
        [{"input_ids": row, "box": [[1, 2], [3, 4]]} for row in rows],
        quadrat.Ragged.from_rows(rows),
    ]

    def new() -> Any:
        return quadrat.DataCollatorWithPadding(make_tokenizer())

    shared, expected = new(), [works.picture(new()(kind)) for kind in kinds]

    def collate(number: int) -> bool:
        order = [*range(len(kinds))] * 4
        random.Random(number).shuffle(order)
        return all(works.picture(shared(kinds[at])) == expected[at] for at in order)

    assert everywhere(collate) == [True] * THREADS


ALL_MASKED = {"mlm_probability": 1.0, "mask_replace_prob": 1.0, "random_replace_prob": 0.0}
# A collator, its options, what changes meanwhile, and to what.
CHANGES: list[tuple[str, dict[str, Any], str, Any]] = [
    ("DataCollatorWithPadding", {}, "tokenizer.padding_side", "left"),
    ("DataCollatorWithPadding", {}, "tokenizer.pad_token", "[EOS]"),
    ("DataCollatorWithPadding", {}, "pad_to_multiple_of", 4),
    ("DataCollatorForTokenClassification", {}, "label_pad_token_id", -1),
    ("DataCollatorForSeq2Seq", {}, "padding", "max_length"),
    ("DataCollatorForLanguageModeling", ALL_MASKED, "tokenizer.mask_token", "[EOS]"),
    ("DataCollatorForLanguageModeling", ALL_MASKED, "mlm", False),
    ("DataCollatorForLanguageModeling", {"mlm": False}, "tokenizer.padding_side", "left"),
    ("DataCollatorForLanguageModeling", {"mlm": False}, "padding_free", True),
    ("DataCollatorForTokenClassification", {}, "padding_free", True),
    ("DataCollatorWithFlattening", {}, "separator_id", -5),
    ("DataCollatorWithFlattening", {}, "return_seq_idx", True),
]


def changed_within(call: Callable[[], Any], number: int, change: Callable[[], Any]) -> bool:
    """Make a change as another thread would, at the call of the function of this number, if there are as many."""
    left = [number]

    def look(frame: Any, event: str, _: Any) -> None:
        left[0] -= event == "call"
        if left[0] < 0:
            sys.setprofile(None)
            change()

    sys.setprofile(look)
    try:
        call()
    finally:
        sys.setprofile(None)
    return left[0] < 0


@pytest.mark.filterwarnings("ignore:Creating a tensor from a list of numpy.ndarrays")
@pytest.mark.parametrize(("name", "options", "what", "value"), CHANGES)
def test_options_that_change_while_a_plan_is_made(name, options, what, value):
    """Whenever that was, later batches are those of the options as they are then."""
    features = [{"input_ids": [11, 12, 13], "labels": [1, 2, 3]}, {"input_ids": [14], "labels": [1]}]
    if name in ("DataCollatorWithPadding", "DataCollatorForLanguageModeling"):
        features = [{"input_ids": row["input_ids"]} for row in features]
    tokenizer = make_tokenizer(mask_token="[MASK]")
    first = {} if name == "DataCollatorWithFlattening" else {"tokenizer": tokenizer}
    of, _, field = what.rpartition(".")
    own_option = field == "padding_free" or ("Flattening" in name and not flattening_takes_arrays())
    arrays = [{key: np.array(values) for key, values in row.items()} for row in features]
    for known, kind in itertools.product((False, True), (features, arrays)):
        number = changed = 0
        while changed == number:
            homes = quadrat, quadrat if own_option else transformers
            ours, reference = (getattr(home, name)(**first, **options) for home in homes)
            holders = [tokenizer] if of else [ours, reference]
            before = getattr(holders[0], field)
            type(ours)._quadrat_shared.clear()  # else this one knows what the last one did
            if known:
                ours([dict(row) for row in features])
            changed += changed_within(
                lambda ours=ours, kind=kind: ours(kind),
                number,
                lambda holders=holders: [setattr(holder, field, value) for holder in holders],
            )
            number += 1
            for now in (value, before):
                for holder in holders:
                    setattr(holder, field, now)
                type(ours)._quadrat_shared.clear()
                assert works.picture(ours(kind)) == works.picture(reference(kind)), f"{field}={now!r}, call {number}"
        assert number > 1 or known


@pytest.mark.parametrize("module", [items, generators, switch, compared])
@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_a_forked_process_finds_locks_free(module):
    """Though another thread held them, which the process does not have."""
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with module._lock:
            held.set()
            done.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    try:
        assert told(lambda: module._lock.acquire(timeout=10)) == "gave True"
    finally:
        done.set()
        thread.join()


@pytest.mark.parametrize("deferred", [False, True])
def test_masks_by_counter_from_a_shared_dataset(deferred):
    """Whatever the threads do, a row has the mask that its number gives it."""
    columns = {"input_ids": [list(range(10, 20 + number % 9)) for number in range(64)]}
    source = quadrat.ArrowDataset(datasets.Dataset.from_dict(columns))
    order = [random.Random(number).sample(range(64), 8) for number in range(40)]

    def new() -> Any:
        tokenizer = make_tokenizer(mask_token="w9")
        return quadrat.DataCollatorForLanguageModeling(tokenizer, rng="philox", seed=5, deferred=deferred)

    alone, shared = new(), new()
    expected = [works.picture(alone(source.__getitems__(rows))) for rows in order]

    def collate(number: int) -> bool:
        turned = order[number:] + order[:number]
        batches = [works.picture(shared(source.__getitems__(rows))) for rows in turned]
        return batches == expected[number:] + expected[:number]

    assert everywhere(collate) == [True] * THREADS


@pytest.mark.parametrize("library", ["np", "pt"])
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("DataCollatorForLanguageModeling", {"seed": 5}),  # of which one thread makes a generator
        # On 4.57 words, too, which Python's generator shuffles; the rest is the library's.
        *((name, {}) for name in samples.BARE[1:]),
    ],
)
def test_threads_draw_one_after_the_other(name, options, library):
    """Together they make the batches that one thread makes alone, in another order."""
    rows = [{"input_ids": list(range(10, 50))}] * 4

    def new() -> Any:
        seed_everything(5)
        return getattr(quadrat, name)(make_tokenizer(mask_token="w9"), return_tensors=library, **options)

    def drawn(collator: Any) -> list[str]:
        return [str({key: value.tolist() for key, value in collator(rows).items()}) for _ in range(8)]

    alone = new()
    expected = [batch for _ in range(THREADS) for batch in drawn(alone)]
    shared = new()
    batches = everywhere(lambda _: drawn(shared))
    assert sorted(itertools.chain(*batches)) == sorted(expected)


def beside(others: Callable[[int], None], read: Callable[[], None]) -> None:
    """Four threads do one thing after the other to the row of their number, until all others have read ten times."""
    left, lock = [THREADS - 4], threading.Lock()

    def work(number: int) -> None:
        if number < 4:
            while left[0]:
                others(number)
            return
        try:
            for _ in range(10):
                read()
        finally:
            with lock:
                left[0] -= 1

    everywhere(work)


def test_rows_that_others_edit_are_read_in_one_state():
    """No batch falls back: torch reads lists without a lock."""
    collator = quadrat.DataCollatorWithPadding(make_tokenizer())
    rows = [{"input_ids": [1000] * 40, "attention_mask": [1] * 40} for _ in range(8)]
    collator(rows)

    def edit(number: int) -> None:
        for value in (1, 2):
            rows[number]["input_ids"][:] = [1000 * value] * 40
            rows[number]["attention_mask"][:] = [value] * 40

    def read() -> None:
        batch = collator(rows)
        assert all(len(set(row.tolist())) == 1 for column in batch.values() for row in column), batch

    before = quadrat.stats()
    beside(edit, read)
    assert quadrat.stats()[1:3] == (before.remembered + 10 * (THREADS - 4), before.fell_back)


def test_rows_that_others_take_apart():
    collator = quadrat.DataCollatorWithPadding(make_tokenizer())
    rows = [{"input_ids": [1000] * 40, "attention_mask": [1] * 40} for _ in range(8)]
    expected = works.picture(collator(rows))

    def take_apart(number: int) -> None:
        rows[number]["attention_mask"] = rows[number].pop("attention_mask")

    def read() -> None:
        try:
            batch = collator(rows)
        except (KeyError, ValueError, RuntimeError):  # a row without its mask
            return
        assert works.picture(batch) == expected

    beside(take_apart, read)


def test_words_that_others_edit():
    """Pairs of offsets are lists here, which others write to and exchange; no batch falls back to torch."""
    tokenizer = make_tokenizer(mask_token="w9")
    collator = quadrat.DataCollatorForLanguageModeling(
        tokenizer, whole_word_mask=True, mask_replace_prob=1, random_replace_prob=0
    )
    rows = [{"input_ids": list(range(10, 60)), "offset_mapping": [[at, at + 1] for at in range(50)]} for _ in range(4)]
    collator(rows)

    def edit(number: int) -> None:
        pairs = rows[number]["offset_mapping"]
        for at in range(50):
            pairs[at][:] = [at, at + 1]
            pairs[at] = [at, at + 1]

    def read() -> None:
        assert collator(rows)["input_ids"].shape == (4, 50)

    before = quadrat.stats()
    beside(edit, read)
    assert quadrat.stats()[1:3] == (before.remembered + 10 * (THREADS - 4), before.fell_back)


def test_threads_that_look_at_a_batch_see_the_same_rows():
    dataset = quadrat.ArrowDataset(datasets.Dataset.from_dict({"input_ids": [[1], [2, 3], [], [4]]}))
    for _ in range(20):
        rows = dataset.__getitems__(range(4))
        seen = together(*[lambda rows=rows: [id(row) for row in rows]] * 4)
        assert seen == [seen[0]] * 4
