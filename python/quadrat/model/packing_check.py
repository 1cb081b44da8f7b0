"""`quadrat.check_packing`: whether a model keeps the rows of a packed batch apart, measured on its logits."""

import itertools
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from quadrat.model.packed_run import NoLogitsError, Packed, batch_of_two, undisturbed, without_flash

logger = logging.getLogger("quadrat")
_MOST_NUMBERS = 10**9  # of a model that runs without being asked for


@dataclass(frozen=True)
class PackingReport:
    """The result of `check_packing`; it is true if no problem was found.

    Attributes:
        model: the class of the model.
        packed: whether the batch is packed; a padded one needs no check.
        problems: what is wrong, and the options of the collator or of the model with which it is not.
        differences: for each row, padding that is a row included, the largest difference between its logits in the
            batch and alone; empty if the model could not be run.
        tolerance: the largest difference that rounding explains.
        unmeasured: what this machine could not measure; None if nothing.
    """

    model: str
    packed: bool = True
    problems: tuple[str, ...] = ()
    differences: tuple[float, ...] = ()
    tolerance: float = 0.0
    unmeasured: str | None = None

    @property
    def ok(self) -> bool:
        """True if there is no problem."""
        return not self.problems

    def __bool__(self) -> bool:
        return self.ok

    def raise_if_missing(self) -> None:
        """Raise a ValueError with the report, unless it is `ok`."""
        if not self.ok:
            raise ValueError(str(self))

    def __str__(self) -> str:
        keeps = "does not keep" if not self.ok else "keeps" if self.unmeasured is None else "may keep"
        lines = [f"{self.model} {keeps} rows apart"]
        lines += [f"- {problem}" for problem in self.problems]
        lines += [f"- not measured: {self.unmeasured}"] * (self.unmeasured is not None)
        if self.differences:
            shown = ", ".join(f"{difference:.1e}" for difference in self.differences)
            lines.append(f"- logits in the batch and alone, row by row: {shown} (rounding: {self.tolerance:.1e})")
        return "\n".join(lines)


def check_packing(model: Any, collator: Any, **kwargs: Any) -> PackingReport:
    """Check before training whether a transformers model gets the arguments that keep packed rows apart.

    Without one of them rows read each other, usually without an error. The check makes a batch of two short rows with
    the collator, runs the model on it and on each row alone, in evaluation mode and without gradients, and compares the
    logits. If they differ, it looks for the options with which they do not. Training mode and random generators stay as
    they are.

    Args:
        model: a model of transformers, or a wrapper of one, for example a `PeftModel`. On a CPU, FlashAttention cannot
            run: then the check measures positions alone, and the report says so.
        collator: a collator that makes a packed batch from rows of `input_ids`; or a packed batch of at least two rows.
        kwargs: what the model gets besides the batch, for example `use_cache=False`.

    Returns:
        A `PackingReport`. It is false if rows mix. `print(report)` shows it, `report.raise_if_missing()` raises it.

    Raises:
        TypeError: when the model has no config.
        ValueError: when the collator needs other columns than `input_ids`: pass one of its batches instead; when the
            model returns neither logits nor hidden states of each token.

    Examples:
        >>> import quadrat
        >>> from transformers import Mamba2Config, Mamba2ForCausalLM
        >>> config = Mamba2Config(vocab_size=64, hidden_size=32, num_heads=4, head_dim=16, num_hidden_layers=1)
        >>> report = quadrat.check_packing(Mamba2ForCausalLM(config), quadrat.DataCollatorWithFlattening())
        >>> report.ok
        False
    """
    inner = next((module for module in model.modules() if hasattr(getattr(module, "config", None), "model_type")), None)
    if inner is None:
        raise TypeError(f"model must be a model of transformers, with a config; {type(model).__name__} has none")
    name = type(inner).__name__
    with undisturbed(collator, model):
        batch = dict(collator if isinstance(collator, Mapping) else batch_of_two(inner, collator))
        if len(batch["input_ids"]) != 1:
            return PackingReport(name, packed=False)
        packed = Packed(model, batch, kwargs)
        if packed.runs_on_gpu_only:
            with without_flash(model):
                return _of_positions(name, packed, inner)
        try:
            differences, tolerance = packed.compare()
        except NoLogitsError:
            raise
        except Exception as error:
            message = f"{name} raises {type(error).__name__} for such a batch: {error}"
            return PackingReport(name, problems=(message,))
        if max(differences) <= tolerance:
            return PackingReport(name, True, (), differences, tolerance)
        message = f"the logits show that rows read each other: {_remedy(packed, inner)}"
        return PackingReport(name, True, (message,), differences, tolerance)


def _of_positions(name: str, packed: Packed, inner: Any) -> PackingReport:
    """The report on a model with FlashAttention on a CPU, which measures one row with the positions of the batch."""
    unmeasured = "FlashAttention runs on a GPU alone; move the model there to know whether it gets boundaries"
    difference, tolerance = packed.of_positions(packed.batch.get("position_ids"))
    if difference <= tolerance:
        return PackingReport(name, True, (), (), tolerance, unmeasured)
    starts = (start for start in _starts_of(inner) if packed.of_positions(packed.positions(start))[0] <= tolerance)
    start = next(starts, None)
    message = "the logits of one row show that its positions are not the model's own"
    remedy = "leave position_ids out" if start is None else f"use position_ids_start={start}"
    return PackingReport(name, True, (f"{message}: {remedy}",), (difference,), tolerance, unmeasured)


def _starts_of(inner: Any) -> tuple[int, ...]:
    """The first positions that models have: 0, or one after the padding token's id."""
    pad = getattr(inner.config.get_text_config(), "pad_token_id", None)
    return (0,) if pad is None else (0, pad + 1)


def _remedy(packed: Packed, inner: Any) -> str:
    """The fewest changes with which logits are those of rows alone."""
    changes: dict[str, dict[str, Any]] = {
        "use_cache=False": {"use_cache": False},
        "no attention_mask": {"attention_mask": None},
        "return_seq_idx=True": {"seq_idx": packed.seq_idx()},
        "return_flash_attn_kwargs=True": packed.boundaries(),
    }
    for start in _starts_of(inner):
        option = "return_position_ids=True" if not start else f"position_ids_start={start}"
        changes[option] = {"position_ids": packed.positions(start)}
    for count in range(1, 4):
        for chosen in itertools.combinations(changes, count):
            try:
                differences, tolerance = packed.compare({k: v for option in chosen for k, v in changes[option].items()})
            except Exception:  # an argument that the model does not take
                continue
            if max(differences) <= tolerance:
                return f"with {' and '.join(chosen)} they do not"
    return "no option of the collator helps on this machine; use padded batches, or FlashAttention on a GPU"


def warn_if_rows_mix(model: Any, collator: Any) -> None:
    """Warn on the logger `quadrat` about a model that is going to be trained on packed batches in which rows mix.

    Large models are not run: a pass may take minutes where they are, or need all processes.
    """
    if sum(parameter.numel() for parameter in model.parameters()) > _MOST_NUMBERS:
        return
    try:
        report = check_packing(getattr(model, "base_model", model), collator, use_cache=False)  # of any head
    except (TypeError, ValueError):  # no model of transformers, or a collator of other columns
        return
    if not report.ok and report.differences:  # a model in parts may be unable to run before training
        logger.warning("%s", report)
