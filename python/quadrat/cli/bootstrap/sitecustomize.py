"""Python imports this at its start under `quadrat run`: it calls the hooks of libraries after these are imported."""

from __future__ import annotations

import atexit
import contextlib
import importlib.machinery
import importlib.util
import json
import os
import sys
from _thread import _local
from typing import Any

_LIBRARIES = (
    *("torch", "accelerate.data_loader", "torchdata.stateful_dataloader.stateful_dataloader", "datasets", "trl"),
    *("transformers", "transformers.modeling_utils", "transformers.trainer"),
)


class _Imports(_local):
    """The imports of a thread: how many modules of quadrat are in the middle of theirs, and the libraries since."""

    depth = 0

    def __init__(self) -> None:
        self.libraries: list[str] = []


class _Finder:
    """Finds no module itself; has `Run.on_import` called after a library, and never amid an import of quadrat's."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.settings, self.imports, self.awaited = settings, _Imports(), set(_LIBRARIES)
        self.runs: dict[str, Any] = {}  # the one of this process

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        is_quadrats = name.startswith("quadrat.")
        if not is_quadrats and name not in self.awaited:
            return None
        finders = sys.meta_path[sys.meta_path.index(self) + 1 :]
        specs = (finder.find_spec(name, path, target) for finder in finders if hasattr(finder, "find_spec"))
        spec = next((spec for spec in specs if spec is not None), None)
        if spec is not None and hasattr(spec.loader, "exec_module"):
            loader: Any = spec.loader
            load, is_of_another_hook = loader.exec_module, "exec_module" in getattr(loader, "__dict__", ())

            def exec_module(module: Any) -> None:
                with contextlib.suppress(AttributeError):
                    del loader.exec_module
                if is_of_another_hook:  # which may delete it as well
                    loader.exec_module = load
                self.imports.depth += is_quadrats
                try:
                    load(module)
                except BaseException as error:
                    if error.__traceback__ is not None:  # without this frame
                        error.__traceback__ = error.__traceback__.tb_next
                    raise
                finally:
                    self.imports.depth -= is_quadrats
                if name in self.awaited:  # transformers loads itself twice
                    self.awaited.discard(name)
                    self.imports.libraries.append(name)
                while self.imports.libraries and not self.imports.depth:
                    library = self.imports.libraries.pop(0)
                    self.run().on_import(library)

            loader.exec_module = exec_module
        return spec

    def run(self) -> Any:
        from quadrat.cli.run_hooks import Run

        return self.runs.get("run") or self.runs.setdefault("run", Run(self.settings))


def _start() -> None:
    folder = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [path for path in sys.path if os.path.abspath(path) != folder]
    # The sitecustomize that Python would have found.
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize")
    if spec is not None and spec.loader is not None:
        module = sys.modules["sitecustomize"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    if "QUADRAT_RUN" in os.environ and importlib.util.find_spec("quadrat") is not None:
        settings = json.loads(os.environ["QUADRAT_RUN"])
        finder = _Finder(settings)
        sys.meta_path.insert(0, finder)
        if settings["process"] == os.getpid():
            atexit.register(_end, finder)  # as the first, so that it runs when all else has ended


def _end(finder: _Finder) -> None:
    """Makes the report, if there is something to say, and the other main processes of the run have ended."""
    run, settings, folder = finder.runs.get("run"), finder.settings, finder.settings["folder"]
    if os.getpid() != settings["process"]:  # a fork of the script
        return
    if run is not None:
        run.finish()
    elif not os.path.isdir(folder) and not settings["reports"]:
        return
    with contextlib.suppress(OSError, AttributeError, KeyboardInterrupt):
        os.makedirs(os.path.join(folder, f"ended-{os.getpid()}"), mode=0o700)
        if sum(name.startswith("ended-") for name in os.listdir(folder)) < settings["ranks"]:
            return
        os.mkdir(os.path.join(folder, "report"))  # of several last ones, one makes the report
        # Modules that are imported now make Python forget an interrupt: the exit status would be another.
        if run is not None and not isinstance(getattr(sys, "last_value", None), KeyboardInterrupt):
            from quadrat.cli.report import write_report

            write_report(settings)
            return
        code = "import json, sys; sys.path[:] = filter(None, sys.path); from quadrat.cli import report; "
        command = [sys.executable, "-c", code + "report.write_report(json.loads(sys.argv[1]))", json.dumps(settings)]
        environment = {name: value for name, value in os.environ.items() if name != "QUADRAT_RUN"}
        os.waitpid(os.posix_spawn(sys.executable, command, environment), 0)


_start()
