"""The position in an epoch, of samplers and streams: it belongs to the iterator that is read, and has a range."""

import pickle

import pytest

import quadrat
from support.streams import LENGTHS, LIMIT, rows_of

ROWS = rows_of(LENGTHS)
MAKES = {
    "sampler": lambda: quadrat.TokenBudgetBatchSampler(LENGTHS, 64, seed=3),
    "batches": lambda: quadrat.BatchedStream(ROWS, 64, window=20, seed=3),
    "packs": lambda: quadrat.data.PackedStream(ROWS, LIMIT, window=20, seed=3),
}
COUNT = {"sampler": "batch", "batches": "given", "packs": "given"}
every_kind = pytest.mark.parametrize("kind", MAKES)


def plain(item):
    """An item as what can be compared."""
    if isinstance(item, list):
        return item
    return {name: item[name].tolist() for name in item}


def rest_of(kind, state):
    """What comes after a state."""
    again = MAKES[kind]()
    again.load_state_dict(pickle.loads(pickle.dumps(state)))
    return [plain(item) for item in again]


@every_kind
def test_an_iterator_goes_on_in_its_own_epoch(kind):
    source = MAKES[kind]()
    items = [plain(item) for item in source]
    iterator = iter(source)
    next(iterator)
    source.set_epoch(1)
    for taken in (2, 3):
        assert plain(next(iterator)) == items[taken - 1]
        state = source.state_dict()
        assert state["epoch"] == 0
        assert rest_of(kind, state) == items[taken:]
    assert source.epoch == 1
    assert [plain(item) for item in source] != items, "the next iteration is of the new epoch"


@every_kind
def test_a_new_epoch_begins_with_its_first_item(kind):
    source = MAKES[kind]()
    next(iter(source))
    source.set_epoch(1)
    state = source.state_dict()
    assert (state["epoch"], state[COUNT[kind]]) == (1, 0)
    assert rest_of(kind, state) == [plain(item) for item in source]
    source.load_state_dict({**state, "epoch": 0})
    source.set_epoch(1)
    assert [plain(item) for item in source] == rest_of(kind, state), "a state that was loaded is of its epoch alone"


@every_kind
@pytest.mark.parametrize(
    ("changed", "error"), [(-1, ValueError), (10**6, ValueError), (1.5, TypeError), ("1", TypeError)]
)
def test_what_no_iterator_has_taken_is_refused(kind, changed, error):
    source = MAKES[kind]()
    next(iter(source))
    state = {**source.state_dict(), COUNT[kind]: changed}
    with pytest.raises(error, match=str(changed)):
        rest_of(kind, state)


@pytest.mark.parametrize("changed", [{"kept": [99]}, {"kept": [-1]}, {"rows": -1}, {"rows": 10**6}, {"lengths": None}])
def test_positions_that_no_stream_has_are_refused(changed):
    stream = MAKES["batches"]()
    iterator = iter(stream)
    while not stream.state_dict()["kept"]:
        next(iterator)
    with pytest.raises(ValueError, match=r"keeps row 99|kept must be|rows must be|other lengths|of a window"):
        rest_of("batches", {**stream.state_dict(), **changed})
