"""What `quadrat run` does before a Trainer trains: batches by token budget, and a stream that can be resumed."""

import contextlib
from argparse import Namespace
from collections.abc import Callable, Iterator
from typing import Any

import quadrat
from quadrat.cli.command import one_line


def prepare(trainer: Any, settings: Namespace, say: Callable[[str], None]) -> None:
    """Before the first training of a Trainer; `say` is told what changes, or why it does not."""
    say = say if trainer.args.process_index == 0 else lambda _: None
    with or_say(say, "the model is not checked for packed rows"):
        _warn_of_packed_rows(trainer)
    if settings.max_tokens is not None:
        with or_say(say, "batches are as before"):
            say(str(quadrat.batch_by_tokens(trainer, settings.max_tokens or "auto")))
    with or_say(say, "a stream is resumed as before"):
        _resume_stream(trainer, say)


@contextlib.contextmanager
def or_say(say: Callable[[str], None], what: str) -> Iterator[None]:
    """The script goes on after an error, and a line says why something is as before."""
    try:
        yield
    except Exception as error:
        kind = "" if isinstance(error, (TypeError, ValueError)) else f"{type(error).__name__}: "
        say(f"{what}: {kind}{one_line(error)}")


def budget_loader(loader: Any, settings: Namespace) -> str:
    """Gives a DataLoader of the script batches by token budget. Returns what changes; raises what says why not."""
    from quadrat.collators._base import Collator
    from quadrat.integration.loader_by_tokens import loader_by_tokens

    if not isinstance(loader.collate_fn, Collator):
        name = getattr(loader.collate_fn, "__name__", type(loader.collate_fn).__name__)
        raise TypeError(
            f"{name} may pad in its own way: if it pads to the longest row, give the loader to quadrat.batch_by_tokens"
        )
    by_tokens, numbers = loader_by_tokens(loader, settings.max_tokens or "auto")
    vars(loader).update(vars(by_tokens))  # a loader refuses other batches when it has been made
    return str(numbers)


def _warn_of_packed_rows(trainer: Any) -> None:
    from quadrat.batching.budget import joins_rows
    from quadrat.model.packing_check import warn_if_rows_mix

    collator = trainer.data_collator
    is_of_trl = "trl" in type(collator).__module__.split(".")  # patch_trl looks at those
    if trainer.args.process_index == 0 and joins_rows(collator) and not is_of_trl:
        warn_if_rows_mix(trainer.model, collator)


def _resume_stream(trainer: Any, say: Callable[[str], None]) -> None:
    from torch.utils.data import IterableDataset

    callbacks = trainer.callback_handler.callbacks
    if not isinstance(trainer.train_dataset, IterableDataset):
        return
    if any(isinstance(callback, quadrat.SetEpochCallback) for callback in callbacks):
        return
    from quadrat.integration.resume import STORED

    class GoesOn(quadrat.SetEpochCallback):
        """Leaves a run alone whose checkpoint says nothing of its stream: the script would have gone on, too."""

        def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if not state.global_step or STORED in state.stateful_callbacks:
                super().on_train_begin(args, state, control, **kwargs)
                return
            self.on_epoch_begin = lambda *_, **__: None  # type: ignore[method-assign]
            say("the checkpoint does not say where it was in the stream: Trainer goes on as before")

    trainer.add_callback(GoesOn())
