"""Everything patched at once, and what there is to see of it from outside."""

import contextlib
import functools
import sys
import warnings
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import datasets
import transformers
from transformers import BatchEncoding, set_seed

import quadrat

LIBRARIES = ("transformers", "datasets", "trl")


@contextlib.contextmanager
def everything_patched() -> Iterator[None]:
    """`quadrat.patch`: all that is installed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what TRL's dependencies say when they are imported
        patch = quadrat.patch()
    with patch:
        yield


def assert_unchanged(job: Callable[[], Any]) -> None:
    """What `job` gives is equal with the patches and without them."""
    expected = _seeded(job)
    with everything_patched():
        got = _seeded(job)
    assert got == expected


def unchanged(test: Callable[..., Any]) -> Callable[..., None]:
    """A test of what a function gives: equal with the patches and without them."""

    @functools.wraps(test)
    def run(*arguments: Any, **fixtures: Any) -> None:
        assert_unchanged(lambda: test(*arguments, **fixtures))

    return run


def _seeded(job: Callable[[], Any]) -> Any:
    set_seed(0)
    return job()


def picture() -> dict[tuple[str, str], Any]:
    """What the modules of the libraries, and the classes that are patched, have under their names."""
    classes = (
        datasets.Dataset,
        datasets.IterableDataset,
        BatchEncoding,
        transformers.PreTrainedTokenizerBase,
    )
    modules = [
        (name, module)
        for name, module in list(sys.modules.items())
        if name.partition(".")[0] in LIBRARIES and isinstance(module, ModuleType)
    ]
    places = [*modules, *((cls.__qualname__, cls) for cls in classes)]
    values = {(name, key): value for name, place in places for key, value in list(vars(place).items())}
    collators = [value for (_, key), value in values.items() if "ollator" in key and isinstance(value, type)]
    return values | {("home", cls): (cls.__module__, cls.__qualname__) for cls in dict.fromkeys(collators)}
