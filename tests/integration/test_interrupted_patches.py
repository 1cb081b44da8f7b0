"""A patch that is interrupted while it is applied or undone: the libraries are whole, as they were or patched."""

import pytest
import transformers.modeling_flash_attention_utils
import transformers.trainer

import quadrat
from quadrat.integration.patch_datasets import DATASETS
from quadrat.integration.patch_transformers import TOKENIZERS, TRANSFORMERS
from support.interrupts import Moments
from support.patched import picture

pytestmark = pytest.mark.slow

SWITCHES = (TRANSFORMERS, TOKENIZERS, DATASETS)


def interrupt():
    raise KeyboardInterrupt


def undo_all():
    for switch in SWITCHES:
        for patch in list(switch._in_force):
            patch.undo()


def patch():
    return quadrat.patch_transformers()


@pytest.fixture
def before():
    patch().undo()  # loads what is loaded the first time
    yield picture()
    undo_all()


def test_all_or_nothing(before):
    moments = Moments(interrupt)
    count = moments.count(patch)
    undo_all()
    seen = set()
    for moment in range(count * 9 // 10, count, count // 60):  # most is loading, before anything is swapped
        with pytest.raises(KeyboardInterrupt):
            moments.run(patch, moment)
        in_force = [len(switch._in_force) for switch in SWITCHES]
        assert in_force in ([0] * len(SWITCHES), [1] * len(SWITCHES))
        if not any(in_force):
            seen.add(moment)
            assert picture() == before
        undo_all()
        assert picture() == before
    assert len(seen) > 2
    with patch():
        assert transformers.DataCollatorWithPadding is quadrat.DataCollatorWithPadding
        assert picture() != before
    assert picture() == before


def test_undoing_again_does_the_rest(before):
    moments = Moments(interrupt)
    count = moments.count(patch().undo)
    halfway = 0
    for moment in range(0, count, max(1, count // 60)):
        patched = patch()
        with pytest.raises(KeyboardInterrupt):
            moments.run(patched.undo, moment)
        halfway += picture() != before
        patched.undo()
        assert picture() == before
        assert not any(switch._in_force for switch in SWITCHES)
    assert halfway > 2


def test_the_library_is_restored_when_a_patch_of_it_raises(before, monkeypatch):
    monkeypatch.setattr(DATASETS, "_swap", interrupt)
    with pytest.raises(KeyboardInterrupt):
        patch()
    assert picture() == before
