"""What a mask keeps is worked out once for a mask, and anew whenever it may have changed."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from quadrat.bert_padding import unpad_input
from quadrat.varlen import layout
from quadrat.varlen.layout import MOST, layout_of
from support import flash


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """The shapes of the masks that were looked at."""
    seen: list[Any] = []
    original = layout.compute

    def compute(mask: Any) -> Any:
        seen.append(tuple(mask.shape))
        return original(mask)

    monkeypatch.setattr(layout, "compute", compute)
    layout._known.clear()
    yield seen
    layout._known.clear()


def a_mask() -> Any:
    return torch.tensor([[1, 1, 0, 0], [0, 0, 0, 0], [0, 1, 0, 1]])


def assert_right(mask: Any) -> None:
    hidden = torch.arange(float(mask.numel())).reshape(mask.shape)
    flash.assert_same(unpad_input(hidden, mask), flash.unpad_input(hidden, mask))


def test_once_for_a_mask(computed: list[Any]) -> None:
    mask = a_mask()
    first = layout_of(mask)
    assert all(layout_of(mask) is first for _ in range(5))
    assert len(computed) == 1
    assert layout_of(mask.clone()).indices is not first.indices
    assert len(computed) == 2


def test_views_of_a_mask_are_known_too(computed: list[Any]) -> None:
    mask = a_mask()
    for _ in range(3):
        for view in (mask, mask[:, -2:], mask[:, :2], mask.t(), mask[1:]):
            assert_right(view)
    assert len(computed) == 5
    with torch.no_grad():
        layout_of(mask[:, -2:])
    assert len(computed) == 5
    assert_right(mask.view(torch.uint64).view(torch.int64)[:, ::2])
    assert len(computed) == 6


@pytest.mark.parametrize(
    "write",
    [
        lambda mask: mask.zero_(),
        lambda mask: mask[0].fill_(1),
        lambda mask: mask[:, 1:].fill_(1),
        lambda mask: mask.__setitem__((0, 3), 1),
        lambda mask: mask.detach().fill_(1),
        lambda mask: mask.copy_(torch.ones_like(mask)),
        lambda mask: mask.resize_(2, 3),
        lambda mask: mask.t_(),
        lambda mask: mask.set_(torch.ones(3, 4, dtype=torch.int64)),
        lambda mask: setattr(mask, "data", torch.ones(3, 4, dtype=torch.int64)),
    ],
)
def test_written_in_place(computed: list[Any], write: Any) -> None:
    mask = a_mask()
    for inference in (False, True):
        assert_right(mask)
        with torch.inference_mode(inference):
            write(mask)
        assert_right(mask)
    assert len(computed) > 1


def test_a_view_written_by_way_of_its_base(computed: list[Any]) -> None:
    mask = a_mask()
    view = mask[:, 1:]
    assert_right(view)
    mask.fill_(1)
    assert_right(view)
    assert len(computed) == 2


def test_memory_that_is_used_again(computed: list[Any]) -> None:
    for step in range(20):
        mask = torch.zeros(3, 4, dtype=torch.int64)
        mask.view(-1)[: step % 12] = 1
        mask = mask.clone()  # of version 0, often where the last one was
        assert_right(mask)
        del mask
    assert len(computed) == 20


def test_other_memory_at_the_same_address(computed: list[Any]) -> None:
    memory = bytearray(96)
    mask = torch.frombuffer(memory, dtype=torch.int64).reshape(3, 4).clone()
    assert_right(mask)
    for one in (0, 1, 0, 1):
        mask.data = torch.full((3, 4), one)
        assert_right(mask)
    assert len(computed) == 5


def test_no_mask_is_kept_alive(computed: list[Any]) -> None:
    mask = a_mask()
    layout_of(mask)
    layout_of(mask[:, 1:])
    gone, indices = weakref.ref(mask), weakref.ref(layout_of(mask).indices)
    del mask
    assert gone() is None
    assert indices() is None, "nor is what belongs to it, without the collector"
    assert not layout._known


def test_bounded(computed: list[Any]) -> None:
    masks = [a_mask() for _ in range(3 * MOST)]
    for mask in masks:
        layout_of(mask)
        assert len(layout._known) <= MOST
    for mask in masks[-MOST:]:
        layout_of(mask)
    assert len(computed) == len(masks)


def test_what_was_returned_may_be_written_to(computed: list[Any]) -> None:
    mask = a_mask()
    for written in (lambda found: found.indices, lambda found: found.cu_seqlens, lambda found: found.lengths):
        written(layout_of(mask)).zero_()
        assert_right(mask)
    assert len(computed) == 4


def test_inference_tensors_are_looked_at_each_time(computed: list[Any]) -> None:
    with torch.inference_mode():
        mask = a_mask()
        for _ in range(3):
            assert_right(mask)
            mask.fill_(1)
    assert len(computed) == 3
    assert not layout._known


def test_what_inference_found_out_serves_training(computed: list[Any]) -> None:
    mask, hidden = a_mask(), torch.randn(3, 4, 2, requires_grad=True)
    with torch.inference_mode():
        unpad_input(hidden, mask)
    unpad_input(hidden, mask)[0].sum().backward()
    assert hidden.grad is not None
    assert len(computed) == 1


def test_masks_of_floats_too(computed: list[Any]) -> None:
    mask = a_mask().double()
    for _ in range(3):
        assert_right(mask)
    assert len(computed) == 1


def test_threads(computed: list[Any]) -> None:
    masks = [(torch.arange(24).reshape(3, 8) % (2 + number) == 0).long() for number in range(MOST + 4)]
    failed: list[BaseException] = []

    def work(start: int) -> None:
        try:
            for step in range(300):
                own = a_mask()
                own[0, step % 4] = 0
                assert_right(own)
                assert_right(masks[(start + step) % len(masks)])
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(start,)) for start in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    gc.collect()
    assert len(layout._known) <= MOST
