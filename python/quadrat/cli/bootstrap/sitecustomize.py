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

_WATCHED = {
    *("transformers", "transformers.trainer", "transformers.pipelines", "datasets", "trl", "sentence_transformers"),
    *("torch", "accelerate.data_loader", "torchdata.stateful_dataloader.stateful_dataloader"),
}


class _Watch:
    """Finds no module itself; calls `quadrat.cli.watch.loaded` after one of those that are watched."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name not in _WATCHED:
            return None
        finders = sys.meta_path[sys.meta_path.index(self) + 1 :]
        specs = (finder.find_spec(name, path, target) for finder in finders if hasattr(finder, "find_spec"))
        spec = next((spec for spec in specs if spec is not None), None)
        if spec is not None and hasattr(spec.loader, "exec_module"):
            loader: Any = spec.loader
            load, is_own = loader.exec_module, "exec_module" in getattr(loader, "__dict__", ())

            def exec_module(module: Any) -> None:
                with contextlib.suppress(AttributeError):
                    del loader.exec_module
                if is_own:  # that of another hook, which may delete it as well
                    loader.exec_module = load
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
            atexit.register(_end, told)  # as the first, so that it runs when all else has ended


def _end(told: dict[str, Any]) -> None:
    """Makes the report, if batches were made here or in processes that were started from here."""
    watch, folder = sys.modules.get("quadrat.cli.watch"), told["folder"]
    if watch is not None:
        watch.finish()
    if os.getpid() != told["process"]:  # a fork of the script
        return
    if watch is None and not os.path.isdir(folder):
        if told["of_trainer"] and not told["quiet"] and sys.stderr is not None and os.environ.get("RANK", "0") == "0":
            names = ", ".join(told["of_trainer"])
            sys.stderr.write(f"quadrat run: {names} did nothing: this script used no Trainer\n")
        return
    if watch is None:
        with contextlib.suppress(OSError), open(os.path.join(folder, f"main-{os.getpid()}.json"), "w") as file:
            file.write("{}")
    # Modules that are imported now make Python forget that a script was interrupted: its exit status would be another.
    if watch is not None and not isinstance(getattr(sys, "last_value", None), KeyboardInterrupt):
        watch.report()
    else:
        code = "import sys; sys.path[:] = filter(None, sys.path); from quadrat.cli import watch; watch.report()"
        environment = {**os.environ, "QUADRAT_RUN": json.dumps(told)}
        with contextlib.suppress(OSError, KeyboardInterrupt):
            os.waitpid(os.posix_spawn(sys.executable, [sys.executable, "-c", code], environment), 0)


_start()
