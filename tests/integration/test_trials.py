"""Trials of the installed libraries, with all patches in force: none runs through what a patch put in their place."""

import contextlib
import importlib.util
import inspect
import sys
from types import CodeType

import datasets
import pyarrow as pa
import pytest
import torch

from quadrat.collators._base import Collator
from quadrat.data import arrow, iterable
from quadrat.installed import behaviour, imitated
from quadrat.integration.patch_datasets import DATASETS
from quadrat.integration.patch_transformers import TOKENIZERS, TRANSFORMERS
from quadrat.integration.table import rows
from quadrat.planning import padded
from quadrat.support import generators, kinds
from support.isolated import words
from support.patched import everything_patched

HAS_TRL = importlib.util.find_spec("trl") is not None
SWITCHES = [TRANSFORMERS, TOKENIZERS, DATASETS]
# Each with its arguments.
TRIALS = [
    (behaviour.zero_is_a_seed,),
    (behaviour.makes_fitting_generators,),
    (behaviour.numpy_token_labels_are_like_torch,),
    (behaviour.pad_warns_of_fast_tokenizers,),
    (behaviour.flattening_takes_arrays,),
    (behaviour.flattening_takes_a_start,),
    (behaviour.flattening_drops_empty_rows,),
    (behaviour.numpy_ints_are_labels, "pt"),
    (behaviour.counting_copies_the_vocabulary,),
    (imitated._makes_batches, "pt"),
    (imitated.changed, rows()["DataCollatorWithPadding"]),
    (padded._keeps_numpy_numbers,),
    (generators._torch_is_known, torch.float32),
    (generators._numpy_is_known,),
    (generators._python_is_known,),
    (kinds.torch_has, kinds.INT32),
    (arrow.look_as, "torch", (), pa.list_(pa.int64())),
    (iterable._are_equal,),
]
if HAS_TRL:
    from quadrat.integration.patch_trl import TRL
    from quadrat.trl import sft

    SWITCHES.append(TRL)
    TRIALS += [(sft.outputs,)]


def codes_of(thing):
    """The code of a function, or of all functions that a class defines."""
    functions = [
        getattr(member, "__func__", member) for member in (vars(thing).values() if inspect.isclass(thing) else [thing])
    ]
    codes = [getattr(function, "__code__", None) for function in functions]
    return {id(code): code for code in codes if isinstance(code, CodeType)}


@contextlib.contextmanager
def looking_for_twins():
    """Notes the calls of what patches put in the place of other code, from before they do."""
    seen, names = {}, []

    def look(frame, event, _):
        if event == "call":
            seen[id(frame.f_code)] = frame.f_code

    sys.setprofile(look)
    try:
        with everything_patched():
            twins = [codes_of(swap.twin) for switch in SWITCHES for swap in switch._swaps]
            yield names
    finally:
        sys.setprofile(None)
    twins.append(codes_of(Collator))
    names += [code.co_name for codes in twins for key, code in codes.items() if key in seen]


@pytest.mark.parametrize(
    "trial", TRIALS, ids=[" ".join(getattr(part, "__name__", str(part)) for part in trial) for trial in TRIALS]
)
def test_a_trial_runs_the_original_code(trial):
    trial, *arguments = trial
    with everything_patched():  # which loads what is loaded once
        expected = trial(*arguments)
    getattr(trial, "cache_clear", lambda: None)()
    with looking_for_twins() as names:
        answer = trial(*arguments)
    assert names == []
    assert answer == expected


def test_a_call_through_a_patch_is_found():
    dataset = datasets.Dataset.from_dict({"a": [1]})
    with looking_for_twins() as names:
        dataset.__getitems__([0])
    assert names == ["_getitems"]


FIRST_STREAM = """
import threading
import datasets, quadrat
from quadrat.data import iterable

quadrat.data.patch_datasets()
sets = [datasets.Dataset.from_dict({"a": list(range(20))}) for _ in range(%d)]
start, kinds = threading.Barrier(len(sets)), set()

def read(number):
    start.wait()
    rows = list(sets[number].to_iterable_dataset())
    assert [row["a"] for row in rows] == list(range(20)), rows
    kinds.update(type(row).__name__ for row in sets[number].to_iterable_dataset())

threads = [threading.Thread(target=read, args=[number]) for number in range(len(sets))]
for one in threads: one.start()
for one in threads: one.join()
print(iterable._are_equal.cache_info().misses, *kinds)
"""


@pytest.mark.parametrize("threads", [1, 8])
def test_the_first_stream_of_a_process_is_tried_once(threads):
    tried, kind = words(FIRST_STREAM % threads)
    assert 1 <= int(tried) <= threads
    assert kind == "LazyRow" if hasattr(iterable.streams, "InterleavedShardsExamplesIterable") else "dict"
