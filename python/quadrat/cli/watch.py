"""In the processes of `quadrat run`: patches libraries when they have been imported, and counts until the end."""

import atexit
import contextlib
import functools
import json
import multiprocessing.util
import os
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import quadrat
from quadrat.cli.batch_sizes import PATCHES, count_calls, patch_tokenizers
from quadrat.cli.command import complain, one_line
from quadrat.cli.tally import OPTIONS, TALLY, finish, say
from quadrat.cli.waits import watch_iterators, watch_loaders, watch_read_ahead
from quadrat.support.around import calling_trainer, replaced

# The options of `batch_by_tokens`.
_OF_BATCHES: dict[str, Any] = {"attention": OPTIONS.attention}


def loaded(name: str) -> None:
    """Patches a library that has just been imported."""
    try:
        _count_in_processes()
        if name == "transformers":
            _patch_transformers()
        elif name == "transformers.trainer":
            _patch_trainer()
        elif name in PATCHES:
            PATCHES[name](TALLY)
        elif name == "torch":
            watch_loaders(TALLY, TALLY.add_of_loader)
        elif name == "accelerate.data_loader":
            watch_read_ahead(sys.modules[name], TALLY)
        elif name.startswith("torchdata."):
            watch_iterators(sys.modules[name], TALLY)
        else:
            quadrat.patch(**{one: one == name for one in ("transformers", "tokenizers", "datasets", "trl")})
    except Exception as error:  # the script goes on without
        say(f"{name} is not patched: {type(error).__name__}: {error}")


@functools.cache
def _count_in_processes() -> None:
    """Other processes of the script count for themselves, and leave their numbers when they end."""
    if os.getpid() != OPTIONS.process:
        atexit.register(finish)
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=TALLY.__init__)  # type: ignore[misc]
    ends = multiprocessing.util.Finalize
    multiprocessing.util.register_after_fork(TALLY, lambda _: ends(None, finish, exitpriority=0))


def _patch_transformers() -> None:
    from quadrat.collators._base import Collator

    quadrat.patch_transformers(datasets=False)
    if OPTIONS.max_tokens is not None:
        _patch_loaders()

    patch_tokenizers(TALLY)
    count_calls(TALLY, Collator, "_collate", TALLY.add)


def _patch_loaders() -> None:
    """DataLoaders that a script makes with `shuffle=True` have batches by token budget, too."""
    from torch.utils.data import DataLoader, RandomSampler

    from quadrat.integration.switch import followed_by

    def look(loader: Any) -> None:
        if type(loader) is DataLoader and isinstance(loader.sampler, RandomSampler) and calling_trainer()[0] is None:
            _use_budget(loader)  # of a Trainer, `_prepare` has looked at the rows

    DataLoader.__init__ = followed_by(DataLoader.__init__, look)  # type: ignore[method-assign]


def _use_budget(loader: Any) -> None:
    from quadrat.collators._base import Collator
    from quadrat.integration.token_batches import loader_by_tokens

    own = ("--max-tokens", "--attention")
    TALLY.options.update(name for name in OPTIONS.of_trainer if name in own)
    try:
        if not isinstance(loader.collate_fn, Collator):
            name = getattr(loader.collate_fn, "__name__", type(loader.collate_fn).__name__)
            raise TypeError(
                f"{name} may pad in its own way: if it pads to the longest row, give the loader to "
                "quadrat.batch_by_tokens"
            )
        made, numbers = loader_by_tokens(loader, OPTIONS.max_tokens or "auto", **_OF_BATCHES)
        vars(loader).update(vars(made))  # a loader refuses other batches when it has been made
        said = str(numbers)
    except Exception as error:  # the script goes on without
        said = f"batches of a DataLoader are as before: {_reason(error)}"
    if os.environ.get("RANK", "0") == "0":
        _say_anew(said)


class _Train:
    """`Trainer.train`, a descriptor: prepares the trainer on first access, and adds no frame to tracebacks."""

    def __init__(self, train: Any) -> None:
        self._train = train

    def __get__(self, trainer: Any, cls: type | None = None) -> Any:
        if trainer is not None and not getattr(trainer, "_quadrat_prepared", False):
            trainer._quadrat_prepared = True
            _prepare(trainer)
        return self._train.__get__(trainer, cls)


def _patch_trainer() -> None:
    from transformers import Trainer

    from quadrat.integration.switch import Patch, Swap, Switch

    swaps = [Swap(Trainer.train, _Train(Trainer.train))]
    Patch("run", Switch(lambda: swaps, others=lambda: [Trainer]))


def _say_anew(text: str) -> None:
    if text not in TALLY.said:
        TALLY.said.add(text)
        say(text)


def _prepare(trainer: Any) -> None:
    """Before a training: the batches that were asked for, and a look whether the model keeps packed rows apart."""
    from quadrat.integration.rows import group_by_row_lengths

    TALLY.options.update(OPTIONS.of_trainer)
    with _or_say(trainer, "the model is not checked for packed rows"):
        _warn_of_packed_rows(trainer)
    with _or_say(trainer, "batches are as before"):
        if OPTIONS.max_tokens is not None:
            _say_of(trainer, str(quadrat.batch_by_tokens(trainer, OPTIONS.max_tokens or "auto", **_OF_BATCHES)))
        elif OPTIONS.group_by_length:
            _group(trainer)
    group_by_row_lengths(trainer, functools.partial(_say_of, trainer))
    with _or_say(trainer, "a stream is resumed as before"):
        _resume_stream(trainer)


def _resume_stream(trainer: Any) -> None:
    from torch.utils.data import IterableDataset

    has_one = any(isinstance(one, quadrat.SetEpochCallback) for one in trainer.callback_handler.callbacks)
    if has_one or not isinstance(trainer.train_dataset, IterableDataset):
        return
    from quadrat.integration.resume import STORED

    class GoesOn(quadrat.SetEpochCallback):
        """Leaves a run alone whose checkpoint says nothing of its stream: the script would have gone on, too."""

        acts = True

        def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            self.acts = not state.global_step or STORED in state.stateful_callbacks
            if self.acts:
                super().on_train_begin(args, state, control, **kwargs)
            elif args.process_index == 0:
                say("the checkpoint does not say where it was in the stream: Trainer goes on as before")

        def on_epoch_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if self.acts:
                super().on_epoch_begin(args, state, control, **kwargs)

    trainer.add_callback(GoesOn())


def _warn_of_packed_rows(trainer: Any) -> None:
    from quadrat.batching.budget import joins_rows
    from quadrat.check.packing_check import warn_if_rows_mix

    collator = trainer.data_collator
    is_of_trl = "trl" in type(collator).__module__.split(".")  # patch_trl looks at those
    if trainer.args.process_index == 0 and joins_rows(collator) and not is_of_trl:
        warn_if_rows_mix(trainer.model, collator)


def _group(trainer: Any) -> None:
    """Groups training rows alone: with its own option, Trainer also evaluates in another order, and keeps that."""
    from transformers import TrainerCallback

    args, sampler_of, cls = trainer.args, trainer._get_train_sampler, type(trainer).__name__
    new = hasattr(args, "train_sampling_strategy")
    name, value = ("train_sampling_strategy", "group_by_length") if new else ("group_by_length", True)
    failures = [f"{cls} reads {type(trainer.train_dataset).__name__} in its own order"]  # the last one counts

    def by_length(*given: Any, **options: Any) -> Any:
        try:
            with replaced((args, name, value)):
                made = sampler_of(*given, **options)
            if made is None:
                return made
            if "LengthGrouped" not in type(made).__name__:
                failures.append(f"{cls} has a sampler of its own, {type(made).__name__}")
            elif np.asarray(made.lengths).dtype.kind not in "iuf":
                raise TypeError("the lengths of the rows are not numbers")
            else:
                failures.clear()
            return made
        except Exception as error:
            failures.append(one_line(error))
        return sampler_of(*given, **options)

    class Saying(TrainerCallback):  # type: ignore[misc]
        def on_train_begin(self, *given: Any, **options: Any) -> None:
            if failures:
                _say_of(trainer, f"rows are not grouped by length: {failures[-1]}")

    trainer._get_train_sampler = by_length
    trainer.add_callback(Saying)


@contextlib.contextmanager
def _or_say(trainer: Any, what: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # the script goes on without
        _say_of(trainer, f"{what}: {_reason(error)}")


def _reason(error: Exception) -> str:
    return f"{'' if isinstance(error, (TypeError, ValueError)) else f'{type(error).__name__}: '}{one_line(error)}"


def _say_of(trainer: Any, text: str) -> None:
    if trainer.args.process_index == 0:
        say(text)


def report() -> None:
    """Makes the report, if all main processes have left their numbers."""
    folder, TALLY.is_done = Path(OPTIONS.folder), True
    if len(list(folder.glob("main-*.json"))) < OPTIONS.ranks:
        return
    try:
        (folder / "report").touch(exist_ok=False)  # of several last ones, one makes the report
    except OSError:
        return
    from quadrat.cli.report import merged, show

    processes, elapsed = [json.loads(path.read_text()) for path in folder.glob("*.json")], time.time() - OPTIONS.started
    total = merged(processes, elapsed)
    shutil.rmtree(folder, ignore_errors=True)
    if not OPTIONS.quiet and sys.stderr is not None:
        show(total, OPTIONS.of_trainer, OPTIONS.misplaced)
    if OPTIONS.report is not None:
        try:
            Path(OPTIONS.report).write_text(json.dumps(total, indent=2) + "\n")
        except OSError as error:
            if sys.stderr is not None:
                complain(f"quadrat run: {OPTIONS.report} is not written: {error.strerror or error}")
