"""`trim`: the forward passes of TRL's online trainers, cut to the columns that some row of a pass uses.

TRL pads prompts (left) and completions (right) to the longest row of a generation batch. Policy, old and reference
passes all go through `_get_per_token_logps_and_entropies`, whose results are 0 at masked places.
"""

import logging
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.nn.functional import pad
from torch.nn.parallel import DistributedDataParallel

from quadrat.support.extras import ONLINE_TRAINERS, derives_from
from quadrat.trl.positions import Sides, sides_of
from quadrat.trl.row_sizes import Sizes, sizes_of, split_by_tokens
from quadrat.trl.tested import unlike_tested

logger = logging.getLogger("quadrat")
PASS = "_get_per_token_logps_and_entropies"
_TRAINERS = ("GRPOTrainer", "RLOOTrainer")


class TrimmedPasses:
    """The passes of a trainer, cut; as a string, what is done."""

    def __init__(self, trainer: Any) -> None:
        self.computed_before = self.computed = 0  # tokens that TRL computes for the passes so far, and those computed
        self.reason = unlike_tested(type(trainer), "passes")  # why nothing is done; None: passes are cut
        self.say: Callable[[str], object] = logger.info
        self._trainer, self.original = trainer, getattr(trainer, PASS)
        self._sides: weakref.WeakKeyDictionary[Any, Sides] = weakref.WeakKeyDictionary()

    def __str__(self) -> str:
        if self.reason is not None:
            return f"passes are as before: {self.reason}."
        said = dict.fromkeys(f"{_described(model, sides)}." for model, sides in self._sides.items())
        return " ".join(["passes are cut to the columns that some row uses.", *said])

    def __call__(  # noqa: PLR0917
        self,
        model: Any,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        logits_to_keep: int,
        batch_size: int | None = None,
        compute_entropy: bool = False,
        compute_aux_loss: bool = False,
        **images: Any,
    ) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
        """The log-probabilities and entropies of completions, `[rows, logits_to_keep]`, and an auxiliary loss."""
        rows, width = input_ids.shape
        prompt_width, size = width - logits_to_keep, batch_size or rows
        options = {"compute_entropy": compute_entropy, "compute_aux_loss": compute_aux_loss}
        self.computed_before += rows * width
        sizes, sides = None, None
        if prompt_width and logits_to_keep and not any(value is not None for value in images.values()):
            sizes = sizes_of(attention_mask, logits_to_keep, self._trainer.pad_to_multiple_of)
            sides = self.ask(model, input_ids, attention_mask, sizes)
        if sizes is None or sides is None or not sides.right:
            self.computed += rows * width
            return self.original(  # type: ignore[no-any-return]
                model, input_ids, attention_mask, logits_to_keep, batch_size, **options, **images
            )
        if not sides.left:
            sizes.prompts[:] = prompt_width
        order, counts = np.arange(rows), [size] * (rows // size) + [rows % size] * (rows % size > 0)
        if rows > size and not torch.is_grad_enabled() and not compute_aux_loss:
            order = sizes.order()
            counts = split_by_tokens(sizes.prompts[order], sizes.completions[order], len(counts), size * width)
        parts = []
        for chosen in np.split(order, np.cumsum(counts)[:-1]):
            before, after = (int(one[chosen].max()) for one in sizes)
            kept = slice(prompt_width - before, prompt_width + after)
            index = slice(None) if size >= rows else torch.from_numpy(chosen).to(input_ids.device)
            made = self.original(model, input_ids[index, kept], attention_mask[index, kept], after, **options)
            self.computed += len(chosen) * (kept.stop - kept.start)
            more = (0, logits_to_keep - after)
            parts.append((*(None if one is None else pad(one, more) for one in made[:2]), made[2]))
        logps, entropies, losses = zip(*parts, strict=True)
        back = slice(None) if size >= rows else torch.from_numpy(order.argsort()).to(input_ids.device)
        return (
            torch.cat(logps)[back],
            torch.cat(entropies)[back] if compute_entropy else None,
            torch.stack(losses).mean() if compute_aux_loss else None,
        )

    def ask(self, model: Any, ids: torch.Tensor, mask: torch.Tensor, sizes: Sizes) -> Sides | None:
        """The sides at which passes can be cut; None if there is nothing to cut, and the model was never asked."""
        accelerator = self._trainer.accelerator
        model = model.module if isinstance(model, DistributedDataParallel) else model
        if (sides := self._sides.get(model)) is not None:
            return sides
        widths = sizes.prompts + sizes.completions
        if accelerator.num_processes == 1 and (widths == mask.size(1)).all():
            return None
        half = accelerator.mixed_precision != "no" or any(one.dtype.itemsize < 4 for one in model.parameters())
        longest = widths.argmax()
        row = ids[longest][mask[longest] != 0]
        logps = lambda *given: self.original(*given)[0]  # noqa: E731
        sides = sides_of(model, row, mask.size(1), logps, half=half)
        if accelerator.num_processes > 1:  # which decide the same
            both = accelerator.gather(torch.tensor([sides[:2]], dtype=torch.int64, device=ids.device)).all(0).tolist()
            sides = Sides(left=both[0], right=both[1], why=sides.why)
        said = str(self)
        self._sides[model] = sides
        if (text := _described(model, sides)) not in said:
            self.say(text)
        return sides


def _described(model: Any, sides: Sides) -> str:
    cut = "are not cut" if not sides.right else f"are cut at {'both sides' if sides.left else 'the right only'}"
    return f"Passes of {type(model).__name__} {cut}: {sides.why}"


def trim(trainer: Any) -> TrimmedPasses:
    """Cut the forward passes of a GRPOTrainer or an RLOOTrainer to the columns that some row of a pass uses.

    TRL pads all rows to the longest prompt and the longest completion of a generation batch, and splits it into
    micro-batches without a cut. Losses, gradients, weights and metrics stay, up to rounding; with dropout, other
    numbers are drawn. Passes without gradient (old policy, reference) also take their rows in order of length.

    Columns at the left are cut if the model computes the same for a row wherever it begins: the first pass asks the
    model, with one row. Otherwise, as with GPT-2, only columns at the right are cut. Passes with images stay. Call it
    before `trainer.train()`, in each process. `quadrat.batch_by_tokens` does this, and puts similar rows together.

    Args:
        trainer: a GRPOTrainer or an RLOOTrainer of TRL, or one derived from it.

    Returns:
        What is done, which `print` shows; `computed` and `computed_before` are the tokens computed so far, and those
        that TRL would have computed.

    Raises:
        TypeError: for another trainer.
        ValueError: for a second call.

    Warns:
        UserWarning: if the code of the trainer is not the tested one; nothing is done then.

    Examples:
        >>> import quadrat
        >>> quadrat.trl.trim(object())
        Traceback (most recent call last):
            ...
        TypeError: expected a GRPOTrainer or an RLOOTrainer of TRL, not object
    """
    if not derives_from(type(trainer), "trl", _TRAINERS):
        own = derives_from(type(trainer), "trl", ONLINE_TRAINERS)
        why = ", which pads each micro-batch to its own longest row: there is nothing to cut" * own
        raise TypeError(f"expected a GRPOTrainer or an RLOOTrainer of TRL, not {type(trainer).__name__}{why}")
    if isinstance(getattr(trainer, PASS), TrimmedPasses):
        raise ValueError("the passes of this trainer are trimmed already")
    passes = TrimmedPasses(trainer)
    if passes.reason is None:
        setattr(trainer, PASS, passes)
    return passes
