"""`evaluate_by_length`: a Trainer evaluates rows of similar length together, and returns results in order."""

import logging
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from torch.utils.data import IterableDataset, Sampler
from transformers import Trainer

from quadrat.input.rows import MAIN
from quadrat.integration.rows import row_lengths
from quadrat.ops.concat import leaves_of, tree_map
from quadrat.support.around import replaced, within

logger = logging.getLogger("quadrat")

# Methods that decide which rows an evaluation reads, and what becomes of its results.
_METHODS = ("get_eval_dataloader", "get_test_dataloader", "_get_eval_sampler", "evaluation_loop")
# Arguments with which results come in batches, or rows are dropped.
_ARGUMENTS = {
    "eval_do_concat_batches": True,
    "batch_eval_metrics": False,
    "dataloader_drop_last": False,
    "use_legacy_prediction_loop": False,
}
_OF_SEVERAL_PROCESSES = {"eval_use_gather_object": False}
_PADDING = -100  # with which Trainer fills up predictions of narrower batches
AGAIN = "to have other batches, make the {0} anew (in a notebook, run the cell that makes it, too)"
_AS_BEFORE = "evaluation by length: rows are read in their own order"
_READS_PADDING = (
    "evaluation by length: predictions have a value for each token, and labels have not. How much padding there is "
    "depends on which rows are in a batch. A metric that reads predictions for padding, as that of question answering "
    "in run_qa.py does, changes: without evaluation=True (quadrat run: without --evaluation) it is as before"
)


class LongestFirst(Sampler[int]):
    """The rows of a dataset, the longest ones first.

    Several processes fill their last batches with the first rows, which then count in the losses of these batches. So
    rows that do not fill `rows_of_a_step` stay last, and the rows that are added to them stay first.
    """

    def __init__(self, lengths: Any, rows_of_a_step: int = 1) -> None:
        self.order = np.arange(len(lengths))
        left = len(lengths) % rows_of_a_step
        sorted_rows = slice(rows_of_a_step - left if left else 0, len(lengths) - left)
        moved = self.order[sorted_rows]
        self.order[sorted_rows] = moved[np.argsort(-np.asarray(lengths)[sorted_rows], kind="stable")]

    def __len__(self) -> int:
        return len(self.order)

    def __iter__(self) -> Iterator[int]:
        return iter(self.order.tolist())

    def restored(self, values: Any) -> Any:
        """Values of these rows in the order of the dataset: arrays `[rows, ...]`, also nested ones."""

        def in_order(array: Any) -> Any:
            if not isinstance(array, np.ndarray) or array.shape[:1] != self.order.shape:
                return array
            made = np.empty_like(array)
            made[self.order] = array
            return made

        return tree_map(in_order, values)


def evaluate_by_length(trainer: Any, column: str = MAIN) -> None:
    """Have `evaluate` and `predict` of a Trainer read the longest rows first; predictions and labels stay in order.

    A dataset without lengths, such as one without `column` or an `IterableDataset`, is read as before, with a warning.
    Raises ValueError for a Trainer that evaluates in its own way.
    """
    require_usual_evaluation(trainer)
    args = trainer.args
    rows_of_a_step = args.eval_batch_size * args.world_size if args.world_size > 1 else 1
    warned: set[str] = set()
    sampler_of, loop = trainer._get_eval_sampler, trainer.evaluation_loop

    def warn(text: str) -> None:
        if text not in warned and args.process_index == 0:
            warned.add(text)
            logger.warning("%s", text)

    def sampler(dataset: Any) -> Any:
        try:
            return LongestFirst(row_lengths(trainer, dataset, column), rows_of_a_step)
        except (TypeError, ValueError) as error:
            warn(f"{_AS_BEFORE}: {error}")
            return sampler_of(dataset)

    def evaluation_loop(dataloader: Any, *given: Any, **options: Any) -> Any:
        order, compute = _order_of(dataloader), trainer.compute_metrics
        if order is None:
            if isinstance(getattr(dataloader, "dataset", None), IterableDataset):
                warn(f"{_AS_BEFORE}: a stream cannot be indexed by row")
            return loop(dataloader, *given, **options)

        def in_order(found: Any) -> Any:
            names = ("predictions", "label_ids", "inputs", "losses")
            return compute(type(found)(**{name: order.restored(getattr(found, name)) for name in names}))

        with replaced((trainer, "compute_metrics", None if compute is None else in_order)):
            output = loop(dataloader, *given, **options)
        restored = {name: order.restored(getattr(output, name)) for name in ("predictions", "label_ids")}
        if _pads_tokens_alone(output):
            warn(_READS_PADDING)
        return output._replace(**restored)

    trainer._get_eval_sampler, trainer.evaluation_loop = sampler, evaluation_loop
    trainer._quadrat_evaluates = True


def require_usual_evaluation(trainer: Any) -> None:
    """Raises ValueError for a Trainer that evaluates in its own way."""
    if hasattr(trainer, "_quadrat_evaluates"):
        raise ValueError(f"this Trainer evaluates by length already: {AGAIN.format('Trainer')}")
    require_usual(trainer, _METHODS, "evaluates")
    for name, usual in {**_ARGUMENTS, **(_OF_SEVERAL_PROCESSES if trainer.args.world_size > 1 else {})}.items():
        if getattr(trainer.args, name, usual) != usual:
            raise ValueError(f"rows cannot be put back in order with TrainingArguments({name}={not usual})")


def _pads_tokens_alone(output: Any) -> bool:
    """True if predictions have a place for each token, with padding, and labels have not."""
    if any(getattr(one, "ndim", 0) > 1 for one in leaves_of(output.label_ids)):
        return False
    arrays = (one for one in leaves_of(output.predictions) if getattr(one, "ndim", 0) > 1 and one.size)
    return any((one[:, -1] == _PADDING).reshape(len(one), -1).all(1).any() for one in arrays)


def require_usual(trainer: Any, methods: Iterable[str], does: str, base: type = Trainer) -> None:
    """Raises ValueError for a Trainer that has one of these methods of its own, with what it does in its own way."""
    cls = type(trainer)
    for name in methods:
        own = vars(trainer).get(name)
        if getattr(cls, name) is not getattr(base, name) or not (own is None or hasattr(own, "chooses_as_before")):
            raise ValueError(f"{cls.__name__} {does} in its own way: it has a {name} of its own")


def _order_of(loader: Any) -> LongestFirst | None:
    """The sampler of a DataLoader, also if accelerate has wrapped it; None for any other."""
    samplers = within(getattr(loader, "batch_sampler", None), "batch_sampler", "sampler")
    return next((one for one in samplers if isinstance(one, LongestFirst)), None)
