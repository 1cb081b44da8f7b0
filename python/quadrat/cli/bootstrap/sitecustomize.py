"""Python imports this at its start under `quadrat run`: it waits for the libraries that quadrat patches."""

from __future__ import annotations

import atexit
import contextlib
import importlib.machinery
import importlib.util
import json
import os
import sys
from typing import Any

_WATCHED = {"transformers", "datasets", "trl", "transformers.trainer"}


class _Watch:
    """Finds no module itself; calls `quadrat.cli.watch.loaded` after one of those that are watched."""

    def __init__(self) -> None:
        self._asks = False  # the other finders

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name not in _WATCHED or self._asks:
            return None
        self._asks = True
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self._asks = False
        if spec is not None and hasattr(spec.loader, "exec_module"):
            loader: Any = spec.loader
            load = loader.exec_module

            def exec_module(module: Any) -> None:
                with contextlib.suppress(AttributeError):
                    del loader.exec_module
                load(module)
                if name not in _WATCHED:  # transformers loads itself twice
                    return
                _WATCHED.discard(name)
                from quadrat.cli import watch

                watch.loaded(name)

            loader.exec_module = exec_module
        return spec


def _start() -> None:
    folder = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [path for path in sys.path if os.path.abspath(path) != folder]
    # The sitecustomize that Python would have found.
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize")
    if spec is not None and spec.loader is not None:
        module = sys.modules["sitecustomize"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    if "QUADRAT_RUN" in os.environ and importlib.util.find_spec("quadrat") is not None:
        sys.meta_path.insert(0, _Watch())
        told = json.loads(os.environ["QUADRAT_RUN"])
        if told["process"] == os.getpid():
            atexit.register(_report, told["folder"])  # as the first, so that it runs when all else has ended


def _report(folder: str) -> None:
    """Makes the report, if batches were made here or in processes that were started from here."""
    if "quadrat.cli.watch" in sys.modules or os.path.isdir(folder):
        from quadrat.cli import watch

        watch.finish()


_start()
