"""`Run`: what `quadrat run` does in a process of the script, from hooks that are called after imports to the end."""

import contextlib
import os
import sys
import time
import weakref
from argparse import Namespace
from typing import Any

import quadrat
from quadrat.cli.batch_sizes import UNLABELLED, is_unlabelled, values_of
from quadrat.cli.command import complain
from quadrat.cli.events import EventLog
from quadrat.cli.loop_timing import LoopTiming
from quadrat.cli.model_calls import ModelCalls
from quadrat.support.counts import counting, observe_batches
from quadrat.support.wrappers import wrap_method


class Run:
    """A process of the run: one object, which owns its events, its loops and the calls of its models."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.settings = Namespace(**settings)
        self.events = EventLog(self.settings.folder)
        self.timing = LoopTiming(self.events)
        self.models = ModelCalls(self.timing, self.say, removes=self.settings.remove_padding)
        self._prepared: weakref.WeakSet[Any] = weakref.WeakSet()  # Trainers
        for part in (self.timing, self.models) if hasattr(os, "register_at_fork") else ():
            os.register_at_fork(after_in_child=part.begin)

    def on_import(self, name: str) -> None:
        """A library has just been imported: calls its hook."""
        hooks = {
            "torch": self._torch,
            "torchdata.stateful_dataloader.stateful_dataloader": self._torchdata,
            "accelerate.data_loader": lambda: self.timing.watch_read_ahead(sys.modules[name]),
            "transformers": self._transformers,
            "transformers.modeling_utils": lambda: self.models.watch(sys.modules[name].PreTrainedModel),
            "transformers.trainer": lambda: wrap_method(
                sys.modules[name].Trainer, "train", self._begin_training, self._end_training
            ),
        }
        libraries = ("transformers", "tokenizers", "datasets", "trl")
        try:
            hooks.get(name, lambda: quadrat.patch(**{library: library == name for library in libraries}))()
        except Exception as error:  # the script goes on without
            self.say(f"{name} is not patched: {type(error).__name__}: {error}")

    def say(self, text: str) -> None:
        """A remark: a line on standard error, once in a run."""
        if self.events.is_first(text):
            self.events.write("remarks", texts=text)
            if not self.settings.quiet and sys.stderr is not None:
                complain(f"quadrat run: {text}")

    def finish(self) -> None:
        """The process ends."""
        with contextlib.suppress(Exception):  # masks on a GPU that failed
            self.models.read()
        self.events.finish()

    def _torch(self) -> None:
        from torch.utils.data import DataLoader

        self.timing.watch_torch()
        self._budget_loaders(DataLoader)

    def _torchdata(self) -> None:
        module = sys.modules["torchdata.stateful_dataloader.stateful_dataloader"]
        self.timing.watch_iterators(module)
        self._budget_loaders(module.StatefulDataLoader)

    def _budget_loaders(self, cls: Any) -> None:
        """Has loaders that a script makes with `shuffle=True` make batches by token budget, with --max-tokens."""
        from torch.utils.data import RandomSampler

        def look(loader: Any, result: Any) -> None:
            is_of_script = not isinstance(result, BaseException) and self.timing.thread.trainer is None
            if is_of_script and isinstance(loader.sampler, RandomSampler):
                self._use_budget(loader)

        if self.settings.max_tokens is not None:
            wrap_method(cls, "__init__", lambda loader, *_, **__: loader, look)

    def _use_budget(self, loader: Any) -> None:
        from quadrat.cli.trainer_hooks import budget_loader, or_say

        say = self.say if os.environ.get("RANK", "0") == "0" else lambda _: None
        self.events.write("options", met="--max-tokens")
        with or_say(say, "batches of a DataLoader are as before"):
            say(budget_loader(loader, self.settings))

    def _transformers(self) -> None:
        from quadrat.collators._base import Collator

        quadrat.patch_transformers(datasets=False)
        observe_batches(self._note_batch)
        wrap_method(Collator, "_collate", self._begin_batch, self._end_batch)

    def _begin_batch(self, collator: Any, *_: Any) -> tuple[Any, float] | None:
        """A collator makes a batch; None for one within another one."""
        thread = self.timing.thread
        if thread.noted is not None or not counting():
            return None
        thread.noted = {}
        return collator, time.perf_counter()

    def _note_batch(self, event: str, cause: str) -> None:
        """A batch of this thread fell back, or was made both ways."""
        values = {event: 1, **({"causes": cause} if cause else {})}
        if self.timing.thread.noted is not None:
            self.timing.thread.noted = values
        else:  # of a framework that collators of quadrat know nothing of
            self.events.write(self.events.process, made=1, **values)

    def _end_batch(self, state: tuple[Any, float] | None, batch: Any) -> None:
        if state is None:
            return
        (collator, began), thread = state, self.timing.thread
        noted, thread.noted = thread.noted, None
        if isinstance(batch, BaseException):
            return
        values: dict[str, Any] = {"made": 1, "seconds": time.perf_counter() - began, **(noted or {})}
        values |= values_of(batch, getattr(collator, "pad_to_multiple_of", None))
        if is_unlabelled(batch):
            values["unlabelled"] = 1
            self.say(f"a batch has {UNLABELLED}: look at what truncates rows and ignores labels")
        if thread.batch is not None:
            thread.batch.values = values  # written with its times
        else:
            self.events.write(self.events.process, **values)

    def _begin_training(self, trainer: Any, *_: Any, **__: Any) -> Any:
        from quadrat.cli.trainer_hooks import prepare

        if self.settings.max_tokens is not None:
            self.events.write("options", met="--max-tokens")
        thread = self.timing.thread
        outer, thread.trainer = thread.trainer, trainer
        if trainer not in self._prepared:
            self._prepared.add(trainer)
            prepare(trainer, self.settings, self.say)
        return outer

    def _end_training(self, outer: Any, _: Any) -> None:
        self.timing.thread.trainer = outer
