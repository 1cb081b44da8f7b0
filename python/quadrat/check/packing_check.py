"""`quadrat.varlen.check_packing`: whether a model gets what it needs to keep the rows of a packed batch apart."""

from __future__ import annotations

import ast
import functools
import importlib.util
import inspect
import logging
import re
import textwrap
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch

from quadrat.check.packed_run import NoLogitsError, batch_of_two, compare, starts, undisturbed

logger = logging.getLogger("quadrat")

_VARLEN = ("cu_seq_lens_q", "cu_seq_lens_k", "max_length_q", "max_length_k")
# The option of `DataCollatorWithFlattening` that returns each argument.
_OPTIONS = {
    "position_ids": "return_position_ids",
    "seq_idx": "return_seq_idx",
    **dict.fromkeys(_VARLEN, "return_flash_attn_kwargs"),
}
# For each state that a layer carries from token to token: the argument that resets it, and the package that reads it.
_RESETS: dict[str, tuple[str | None, str]] = {
    "causal convolution": ("seq_idx", "causal_conv1d"),
    "Mamba-2 scan": ("seq_idx", "mamba_ssm"),
    "gated delta rule": ("cu_seq_lens_q", "fla"),
    "Mamba-1 scan": (None, "mamba_ssm"),
    "recurrence": (None, ""),
    "blocks of tokens": (None, ""),
}
_OTHER_RECURRENCES = re.compile(r"(Lightning|Retention)Attention$|^Rwkv(SelfAttention|FeedForward)$|Rglru$|LSTMLayer$")
# A block that is counted from where the batch begins, and not from where its row does.
_BLOCKS = re.compile(r"(position_ids|\.shape\[1\])[ +1)]*// self\.")
_OTHER_MODALITIES = re.compile(r"vision|visual|audio|speech|image|video")
_MASK_FUNCTION = re.compile(r"create_(?!bidirectional|recurrent)\w*mask")


@dataclass(frozen=True)
class PackingFinding:
    """One reason why a model cannot use packed batches.

    Attributes:
        severity: "error" if rows mix, or gradients are wrong; "warning" if transformers itself will raise an error.
        part: the class of the layer or of the model.
        missing: the names of the missing arguments; empty if no argument helps.
        message: what is wrong, and what to do.
    """

    severity: Literal["error", "warning"]
    part: str
    missing: tuple[str, ...]
    message: str


@dataclass(frozen=True)
class PackingReport:
    """The result of `check_packing`; it is true if the model keeps rows apart.

    Attributes:
        model: the class of the model.
        packed: whether the batch is packed; a padded one needs no check.
        findings: the `PackingFinding`s, errors first.
        differences: with `run=True`, for each row, padding that is a row included, the largest difference between its
            logits in the batch and alone.
        tolerance: with `run=True`, the largest difference that rounding explains.
    """

    model: str
    packed: bool
    findings: tuple[PackingFinding, ...] = ()
    differences: tuple[float, ...] | None = None
    tolerance: float | None = None

    @property
    def ok(self) -> bool:
        """True if there is no error."""
        return all(finding.severity != "error" for finding in self.findings)

    def __bool__(self) -> bool:
        return self.ok

    def raise_if_missing(self) -> None:
        """Raise a ValueError with the report, unless it is `ok`."""
        if not self.ok:
            raise ValueError(str(self))

    def __str__(self) -> str:
        lines = [f"{self.model} {'keeps' if self.ok else 'does not keep'} the rows of these batches apart"]
        lines += [f"- {finding.severity}: {finding.message}" for finding in self.findings]
        if self.differences is not None:
            shown = ", ".join(f"{one:.1e}" for one in self.differences)
            lines.append(f"- logits in the batch and alone, row by row: {shown} (rounding: {self.tolerance:.1e})")
        return "\n".join(lines)


def check_packing(model: Any, collator: Any, *, run: bool = False, **kwargs: Any) -> PackingReport:
    """Check before training whether a transformers model gets the arguments that keep packed rows apart.

    Without one of them rows read each other, usually without an error. The check reads the config of the model and the
    code of its layers, and makes a batch of two short rows with the collator.

    Args:
        model: a model of transformers, or a wrapper of one, for example a `PeftModel`.
        collator: a collator that makes a packed batch from rows of `input_ids`; or a packed batch of at least two rows.
        run: also run the model, in evaluation mode and without gradients, on the packed rows and on each row alone, and
            report how much the logits differ. Training mode and random generators stay as they are.
        kwargs: what the model gets besides the batch, for example `use_cache=False`.

    Returns:
        A `PackingReport`. It is false if rows mix, and has a finding for each reason. `print(report)` shows it,
        `report.raise_if_missing()` raises it.

    Raises:
        TypeError: when the model has no config.
        ValueError: when the collator needs other columns than `input_ids`: pass one of its batches instead. With
            `run=True`, when the model returns neither logits nor hidden states of each token.

    Examples:
        >>> import quadrat
        >>> from transformers import Mamba2Config, Mamba2ForCausalLM
        >>> config = Mamba2Config(vocab_size=64, hidden_size=32, num_heads=4, head_dim=16, num_hidden_layers=1)
        >>> report = quadrat.varlen.check_packing(Mamba2ForCausalLM(config), quadrat.DataCollatorWithFlattening())
        >>> report.ok, report.findings[0].part
        (False, 'Mamba2Mixer')
    """
    inner = next((one for one in model.modules() if hasattr(getattr(one, "config", None), "model_type")), None)
    if inner is None:
        raise TypeError(f"model must be a model of transformers, with a config; {type(model).__name__} has none")
    name, is_batch = type(inner).__name__, isinstance(collator, Mapping)
    with undisturbed(collator, model):
        batch = dict(collator if is_batch else batch_of_two(inner, collator))
    if len(batch["input_ids"]) != 1:
        return PackingReport(name, packed=False)
    given = {key: value for key, value in {**batch, **kwargs}.items() if value is not None}
    if not is_batch and "position_ids" in given and len(starts(given["position_ids"])) == 1:
        del given["position_ids"]
    findings = [*_of_attention(inner, given), *_of_recurrences(inner, given)]
    differences = tolerance = None
    if run:
        try:
            with undisturbed(collator, model), torch.no_grad():
                differences, tolerance = compare(model, batch, kwargs)
        except NoLogitsError:
            raise
        except Exception as error:
            said = f"{name} raises {type(error).__name__} for such a batch: {error}"
            findings.append(PackingFinding("error", name, (), said))
        else:
            if not max(differences) <= tolerance:
                findings.append(PackingFinding("error", name, (), "the logits show that rows read each other"))
    findings.sort(key=lambda finding: finding.severity)
    return PackingReport(name, True, tuple(findings), differences, tolerance)


def warn_if_rows_mix(model: Any, collator: Any) -> None:
    """Warn on the logger `quadrat` about a model that is going to be trained on packed batches in which rows mix."""
    try:
        report = check_packing(model, collator, use_cache=False)
    except (TypeError, ValueError):  # no model of transformers, or a collator of other columns
        return
    if not report.ok:
        logger.warning("%s", report)


def _remedy(*missing: str) -> str:
    options = dict.fromkeys(f"{_OPTIONS[name]}=True" for name in missing)
    return f"use DataCollatorWithFlattening({', '.join(options)})"


def _layers(model: Any) -> dict[str, Any]:
    """The modules that work on the tokens of a text, by their paths."""
    return {path: layer for path, layer in model.named_modules() if not _OTHER_MODALITIES.search(path)}


def _of_attention(model: Any, given: dict[str, Any]) -> Iterator[PackingFinding]:
    """FlashAttention needs the boundaries of rows; otherwise the model must make a mask from `position_ids`."""
    names = {type(layer).__name__ for layer in _layers(model).values() if not _states(layer)}
    part = min((name for name in names if "Attention" in name), key=len, default=None)
    if part is None:
        return
    config = model.config.get_text_config()
    types: set[Any] = {type(layer) for layer in _layers(model).values()}
    kind, positions = getattr(config, "_attn_implementation", None) or "eager", given.get("position_ids")
    # Some models with M-RoPE read the boundaries from a fourth row of positions, those of the text.
    multimodal = any("position_ids.shape[0] == 4" in (code := _code(one)) and ".expand(4," not in code for one in types)
    usable = positions is not None and (not multimodal or (positions.ndim == 3 and len(positions) == 4))
    error, where = functools.partial(PackingFinding, "error", part), f"{part} ({kind})"
    mask = given.get("attention_mask")
    if "flash" in kind:
        missing = tuple(name for name in _VARLEN if name not in given)
        if missing and not (usable and any(map(_hands_on_positions, types))):
            yield error(missing, f"{where} needs the boundaries of rows: {_remedy(*missing)}")
        elif not missing and hasattr(given["max_length_q"], "dtype"):
            yield error(("max_length_q",), f"{where} needs max_length_q and max_length_k as ints, not as tensors")
        elif not missing and int(given["cu_seq_lens_q"][-1]) < given["input_ids"].shape[1]:
            said = f"{where} leaves the gradients of padding after the last row unset, which may be NaN"
            yield error((), f"{said}: use quadrat.batching.FixedShapes, which makes rows of the padding")
    elif mask is not None and mask.ndim > 2:
        return  # the mask says which tokens attend to which
    elif mask is not None:
        yield error((), f"{where} ignores resets of position_ids when attention_mask is given: leave it out")
    elif not any(map(_makes_masks, types)):
        said = f"{where}: {type(model).__name__} makes no mask from position_ids; set attn_implementation to a "
        yield error(_VARLEN, f"{said}FlashAttention that it supports, and {_remedy(*_VARLEN)}; or use padded batches")
    elif positions is None:
        yield error(("position_ids",), f"{where} needs positions that start again: {_remedy('position_ids')}")
    elif not usable:
        said = f"{where} needs position_ids of shape [4, 1, total]: those of the text, then the three of M-RoPE"
        yield error(("position_ids",), said)
    elif given.get("use_cache", getattr(config, "use_cache", False)):
        said = f"{where} ignores resets of position_ids with a cache: set model.config.use_cache = False"
        yield error(("use_cache",), f"{said} (SFTTrainer and the Trainer of transformers 5 do so)")


def _of_recurrences(model: Any, given: dict[str, Any]) -> Iterator[PackingFinding]:
    """Layers that carry a state from token to token must reset it where a row begins."""
    found = {path: layer for path, layer in _layers(model).items() if _states(layer)}
    counts = Counter(type(layer) for layer in found.values())
    for path, layer in {type(layer): (path, layer) for path, layer in found.items()}.values():
        name, states = type(layer).__name__, _states(layer)
        where = f"{name} ({counts[type(layer)]} in the model)"
        kept = [state for state in states if not _arrives(model, path, _RESETS[state][0])]
        arguments, packages = zip(*map(_RESETS.__getitem__, states), strict=True)
        missing = tuple(one for one in dict.fromkeys(arguments) if one is not None and one not in given)
        if kept:
            said = f"{where}: the installed transformers cannot reset its {' and '.join(kept)} between rows"
            yield PackingFinding("error", name, (), f"{said}: use padded batches")
        elif missing:
            said = f"{where} needs {' and '.join(missing)} to reset its {' and '.join(states)} between rows"
            yield PackingFinding("error", name, missing, f"{said}: {_remedy(*missing)}")
        elif not getattr(model, "use_kernels", False) and not all(map(importlib.util.find_spec, packages)):
            said = f"{where}: without the kernels of {' and '.join(packages)}, transformers raises an error"
            yield PackingFinding("warning", name, (), f"{said}: install them")


def _states(layer: Any) -> list[str]:
    """The states that a layer carries from token to token, by its parameters and by what it keeps in a cache."""
    kind: Any = type(layer)
    code, convolutions = _code(kind), (one for one in layer.children() if isinstance(one, torch.nn.Conv1d))
    if any(one.groups > 1 and one.kernel_size[0] > 1 for one in convolutions) or "update_conv_state" in code:
        own = {path.rpartition(".")[2]: parameter for path, parameter in layer.named_parameters()}
        if "A_log" not in own:
            return ["causal convolution"]
        mamba = "Mamba-1 scan" if own["A_log"].ndim > 1 else "Mamba-2 scan"
        return ["causal convolution", mamba if "D" in own else "gated delta rule"]
    if "update_recurrent_state" in code or _OTHER_RECURRENCES.search(kind.__name__):
        return ["recurrence"]
    return ["blocks of tokens"] if _BLOCKS.search(code) else []


def _arrives(model: Any, path: str, argument: str | None) -> bool:
    """True if an argument of the model reaches the layer at this path, which uses it."""
    if argument is None:
        return False
    names = path.split(".")
    types: list[Any] = [type(model.get_submodule(".".join(names[:count]))) for count in range(len(names) + 1)]
    handed = (_hands_on(*one, argument) for one in zip(types[:-1], names, strict=True))
    return _uses(types[-1], argument) and all(handed)


@functools.cache
def _hands_on(layer: type, child: str, argument: str) -> bool:
    """True if `forward` gives an argument to a child; where no call of the child is to be seen, to anything."""
    own = [call for call in _calls(layer) if ast.unparse(call.func) == f"self.{child}"]
    gives = [_spreads(call) or argument in ast.unparse(call) for call in own]
    found = all(gives) if own else argument in _code(layer) or any(map(_spreads, _calls(layer)))
    return not _code(layer) or (found and _takes(layer, argument))


@functools.cache
def _uses(layer: type, argument: str) -> bool:
    """True if `forward` names an argument, or hands on what it does not name to a function that may take it."""
    # Convolutions and scans take seq_idx by this name, all others need it by theirs.
    calls = [call for call in _calls(layer) if argument == "seq_idx" and _spreads(call)]
    calls += [call for call in _calls(layer) if any(argument in ast.unparse(one.value) for one in call.keywords)]
    found = any(_reads(layer, call, argument) for call in calls) if calls else argument in _code(layer)
    return not _code(layer) or (found and _takes(layer, argument))


def _reads(layer: Any, call: ast.Call, argument: str) -> bool:
    """True if the function that is called names the argument; one that a package of kernels replaces does."""
    function = getattr(inspect.unwrap(layer.forward), "__globals__", {}).get(ast.unparse(call.func))
    if not inspect.isfunction(function) or hasattr(function, "__wrapped__"):
        return True
    name = next((one.arg for one in call.keywords if one.arg and argument in ast.unparse(one.value)), argument)
    return name in inspect.getsource(function)


def _takes(layer: Any, argument: str) -> bool:
    """True if `forward` takes an argument, or all that it does not name."""
    parameters = inspect.signature(inspect.unwrap(layer.forward)).parameters
    return argument in parameters or any(one.kind is one.VAR_KEYWORD for one in parameters.values())


def _calls(layer: type) -> list[ast.Call]:
    return [call for call in _nodes(layer, ast.Call) if "loss" not in ast.unparse(call.func)]


def _spreads(call: ast.Call) -> bool:
    return any(one.arg is None for one in call.keywords)


def _makes_masks(layer: type) -> bool:
    """True if a module makes causal masks from `position_ids`, given as a keyword or in a dict of arguments."""
    if not any(_MASK_FUNCTION.match(node.id) for node in _nodes(layer, ast.Name)):
        return False
    calls = [call for call in _nodes(layer, ast.Call) if "mask" in ast.unparse(call.func)]
    names = [{one.arg for one in call.keywords} for call in calls]
    names += [{getattr(key, "value", None) for key in node.keys} for node in _nodes(layer, ast.Dict)]
    return any({"attention_mask", "position_ids"} <= one for one in names)


def _hands_on_positions(layer: type) -> bool:
    """True if a module calls its layers with `position_ids`, from which FlashAttention reads where rows begin."""
    inner = [call for call in _nodes(layer, ast.Call) if re.search("layer|block", ast.unparse(call.func))]
    return any(one.arg == "position_ids" for call in inner for one in call.keywords)


@functools.cache
def _code(layer: type) -> str:
    try:
        forward = inspect.unwrap(layer.forward)  # type: ignore[attr-defined]
        return "" if forward is torch.nn.Module.forward else textwrap.dedent(inspect.getsource(forward))
    except (AttributeError, OSError, TypeError):
        return ""


@functools.cache
def _nodes(layer: type, kind: type[ast.AST]) -> list[Any]:
    return [node for node in ast.walk(ast.parse(_code(layer))) if isinstance(node, kind)]
