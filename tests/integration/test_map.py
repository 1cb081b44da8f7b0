"""A collator inside `Dataset.map`: its hash, by which `map` finds earlier results, is that of its options alone."""

import datasets
import pytest
from datasets.fingerprint import Hasher

import quadrat
from support.samples import CLASSES, SAMPLES, batch, make


@pytest.mark.parametrize("name", CLASSES)
def test_a_hash_stays_as_batches_come(name):
    options = {"seed": None} if "seed" in SAMPLES[name][0] else {}
    collator = make(quadrat, name, **options)
    before = Hasher.hash(collator)
    for _ in range(2):
        collator(batch(name))
    assert Hasher.hash(collator) == before


def test_other_results_have_another_hash():
    """Of other options; and as with the reference, of a seeded generator that went on: other masks would come out."""
    name = "DataCollatorWithPadding"
    assert Hasher.hash(make(quadrat, name, padding="longest")) != Hasher.hash(make(quadrat, name))
    collator = make(quadrat, "DataCollatorForLanguageModeling", seed=3)
    before = Hasher.hash(collator)
    collator(batch("DataCollatorForLanguageModeling"))
    assert Hasher.hash(collator) != before


def test_masks_by_counter_hash_as_seed_and_epoch():
    collator, twin = (make(quadrat, "DataCollatorForLanguageModeling", rng="philox") for _ in range(2))
    before = Hasher.hash(collator)
    collator(batch("DataCollatorForLanguageModeling"))
    assert Hasher.hash(collator) == before == Hasher.hash(twin)
    collator.set_epoch(1)
    assert Hasher.hash(collator) != before


def test_map_finds_what_it_made(tmp_path):
    rows = batch("DataCollatorWithPadding")
    datasets.Dataset.from_list(rows).save_to_disk(tmp_path / "rows")
    dataset = datasets.load_from_disk(tmp_path / "rows")
    collator = make(quadrat, "DataCollatorWithPadding", return_tensors="np")
    calls = tmp_path / "calls"

    def pad(columns):
        with calls.open("a") as file:
            file.write("x")
        return dict(collator(columns))

    first = dataset.map(pad, batched=True, batch_size=2, remove_columns=["label"])
    count = len(calls.read_text())
    again = dataset.map(pad, batched=True, batch_size=2, remove_columns=["label"])
    assert count == len(calls.read_text()) == len(rows) // 2
    assert again[:] == first[:]
    expected = [row for at in (0, 2) for row in collator(rows[at : at + 2])["input_ids"].tolist()]
    assert first["input_ids"][:] == expected
