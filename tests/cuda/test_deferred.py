"""Deferred batches on a GPU: what the collator makes on the CPU, made there."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import quadrat
from support import samples
from support.compare import assert_same_batch, seed_everything
from support.gpu import NEEDS_GPU, torch
from support.masking import make_masking_tokenizer
from support.strategies import make_tokenizer

pytestmark = NEEDS_GPU


def assert_arrives(batch: Any, expected: Any) -> None:
    """That a batch becomes `expected` on the GPU, pinned or not, waited for or not, on whatever stream."""
    other = torch.cuda.Stream()
    for deferred in (batch, batch.pin_memory()):
        for non_blocking in (False, True):
            for stream in (torch.cuda.current_stream(), other):
                with torch.cuda.stream(stream):
                    arrived = deferred.to("cuda", non_blocking=non_blocking)
                stream.synchronize()
                for name, value in expected.items():
                    if isinstance(value, torch.Tensor):
                        assert arrived[name].device.type == "cuda", name
                        arrived[name] = arrived[name].cpu()
                assert_same_batch(expected, arrived)


@pytest.mark.parametrize("name", samples.CLASSES)
def test_every_collator(name: str) -> None:
    collator, deferring = samples.make(quadrat, name), samples.make(quadrat, name, deferred=True)
    for _ in range(2):
        seed_everything(5)
        expected = collator(samples.batch(name))
        seed_everything(5)
        assert_arrives(deferring(samples.batch(name)), expected)


lengths = st.lists(st.integers(0, 70) | st.sampled_from([0, 1, 500]), min_size=1, max_size=40)
sides = st.sampled_from(["right", "left"])


@given(lengths, sides, st.sampled_from([None, 8, 64]), st.booleans())
def test_padding(sizes: list[int], side: str, multiple: int | None, further: bool) -> None:
    rows = [{"input_ids": list(range(3, 3 + n)), "token_type_ids": [n % 2] * n, "label": n} for n in sizes]
    options: dict[str, Any] = {"pad_to_multiple_of": multiple}
    if further:
        options["pad_values"] = {"weight": 0.5, "flag": True}
        for row, n in zip(rows, sizes, strict=True):
            row.update(weight=[n / 7] * n, flag=[bool(n % 3)] * (n % 5))
    tokenizer = make_tokenizer(padding_side=side)
    collator, deferring = (
        quadrat.DataCollatorWithPadding(tokenizer, deferred=defers, **options) for defers in (False, True)
    )
    assert_arrives(deferring(copy.deepcopy(rows)), collator(rows))


@given(lengths, st.sampled_from([None, 8, 64]), st.sampled_from([-100, 5]))
def test_flattening(sizes: list[int], multiple: int | None, separator: int) -> None:
    if multiple is not None:
        sizes = [n or 1 for n in sizes]
    rows = [{"input_ids": list(range(3, 3 + n)), "weight": [0.5] * n} for n in sizes]
    options = {
        "pad_to_multiple_of": multiple,
        "pad_values": {"weight": 0.25},
        "return_flash_attn_kwargs": True,
        "return_seq_idx": True,
        "separator_id": separator,
    }
    collator, deferring = (quadrat.DataCollatorWithFlattening(deferred=defers, **options) for defers in (False, True))
    assert_arrives(deferring(copy.deepcopy(rows)), collator(rows))


@given(lengths, sides, st.sampled_from([None, 8]), st.booleans(), st.booleans())
def test_masks_by_counter(sizes: list[int], side: str, multiple: int | None, flagged: bool, keyed: bool) -> None:
    """The masks that the collator draws on the CPU, drawn here."""
    rows: list[dict[str, Any]] = [{"input_ids": list(range(3, 3 + n)), "token_type_ids": [n % 2] * n} for n in sizes]
    for number, row in enumerate(rows):
        flags = [token % 3 == 0 for token in row["input_ids"]]
        row.update({"special_tokens_mask": flags} if flagged else {}, **({"idx": number} if keyed else {}))
    options = {"rng": "philox", "seed": 7, "mlm_probability": 0.5, "pad_to_multiple_of": multiple}
    tokenizer = make_masking_tokenizer(padding_side=side)
    collator, deferring = (
        quadrat.DataCollatorForLanguageModeling(tokenizer, row_key="idx" if keyed else None, deferred=defers, **options)
        for defers in (False, True)
    )
    for masking in (collator, deferring):
        masking.set_epoch(3)
    assert_arrives(deferring(copy.deepcopy(rows)), collator(rows))


def test_a_pinned_loader() -> None:
    rows = [{"input_ids": list(range(3, 3 + n))} for n in range(1, 65)]
    collator, deferring = (
        quadrat.DataCollatorWithPadding(make_tokenizer(), deferred=defers) for defers in (False, True)
    )
    loader = torch.utils.data.DataLoader(rows, 8, collate_fn=deferring, num_workers=2, pin_memory=True)
    for first, batch in zip(range(0, 64, 8), loader, strict=True):
        assert batch.is_pinned()
        arrived = batch.to("cuda", non_blocking=True)
        expected = collator(rows[first : first + 8])
        assert all(torch.equal(arrived[name].cpu(), value) for name, value in expected.items())


def padded() -> quadrat.deferred.DeferredBatch:
    rows = [{"input_ids": [5] * n, "token_type_ids": [0] * n} for n in (500, 3, 77)]
    return quadrat.DataCollatorWithPadding(make_tokenizer(), deferred=True)(rows)


def masked() -> quadrat.deferred.DeferredBatch:
    rows = [{"input_ids": [9] * n} for n in (500, 3, 77)]
    return quadrat.DataCollatorForLanguageModeling(make_masking_tokenizer(), rng="philox", deferred=True)(rows)


@pytest.mark.filterwarnings("ignore:.*Profiler clears events")
@pytest.mark.parametrize(("make", "kernel"), [(padded, "pad_columns"), (masked, "philox_mask")])
def test_one_copy_and_one_launch(make: Callable[[], quadrat.deferred.DeferredBatch], kernel: str) -> None:
    """What the device sees of a padded batch: the bytes once, and one kernel for all its columns."""
    batch = make().pin_memory()
    batch.to("cuda", non_blocking=True)
    torch.cuda.synchronize()
    activities = [torch.profiler.ProfilerActivity.CUDA, torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities) as profile:
        batch.to("cuda", non_blocking=True)
        torch.cuda.synchronize()
    kinds = torch.autograd.DeviceType.CUDA
    seen = [event.name for event in profile.events() if event.device_type == kinds]
    assert len([name for name in seen if "Memcpy HtoD" in name]) == 1, seen
    assert len([name for name in seen if kernel in name]) == 1, seen
    assert len(seen) == 2, seen
