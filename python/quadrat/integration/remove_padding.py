"""`quadrat.remove_padding`: a model, or the models of a Trainer, a pipeline or a SentenceTransformer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import nn
from transformers import PreTrainedModel

from quadrat.integration.prompt_groups import group_prompts
from quadrat.model.calls import Counts
from quadrat.model.remove_padding import RemovedPadding, hook_models


def remove_padding(model: Any) -> RemovedPadding:
    """Let a model of transformers compute the real tokens of its batches alone.

    The model gets padded batches as before, `[rows, width]`, takes the real tokens out, computes them side by side,
    each row for itself, and puts its outputs back into `[rows, width, ...]`. Losses, gradients and the outputs of real
    tokens are the same but for rounding; outputs at padding are 0; dropout draws other numbers.

    The first batch of each kind is computed in both ways, some of its rows in evaluation mode and without gradients,
    before anything is trusted. Hooks of yours run then, too. If outputs or the loss differ by more than rounding, such
    batches are computed as before, and a line of the log says why. Where attention cannot be told of rows, the modules
    that work token by token compute real tokens alone. Batches without padding, with a cache or with
    `output_attentions`, and all calls while torch compiles or exports, stay as they are. A call that does not ask for a
    cache gets none.

    Args:
        model: a model of transformers, or a module, a Trainer, a pipeline or a SentenceTransformer that has some; all
            models of a trainer, for example its reference, compute no padding. A GRPOTrainer or RLOOTrainer gets the
            rows of one prompt in one micro-batch, where the gradient of a step is the same sum.

    Returns:
        A `RemovedPadding`. `print` shows what was done; `.computed` and `.removed` count tokens; `.undo()`, or the end
        of a `with` block, lets the models compute padding again.

    Raises:
        TypeError: when there is no model of transformers in `model`.

    Examples:
        >>> import torch, quadrat
        >>> from transformers import BertConfig, BertModel
        >>> model = BertModel(BertConfig(vocab_size=99, hidden_size=32, num_attention_heads=4, num_hidden_layers=1))
        >>> mask = torch.tensor([[1, 1, 1, 1], [1, 0, 0, 0]])
        >>> with quadrat.remove_padding(model.eval()) as removed:
        ...     outputs = model(input_ids=mask * 7, attention_mask=mask)
        >>> outputs.last_hidden_state.shape, removed.computed, removed.removed
        (torch.Size([2, 4, 32]), 5, 3)
    """
    models = list(dict.fromkeys(_models_of(model)))
    if not models:
        raise TypeError(f"there is no model of transformers in a {type(model).__name__}: pass the model")
    of_prompts = Counts()
    groups = group_prompts(model, of_prompts)
    counts = hook_models(models)
    if groups is None:
        return RemovedPadding(models, [*counts, of_prompts])
    return RemovedPadding(models, [*counts, groups.counts], [groups.undo])


def _models_of(holder: Any) -> Iterator[nn.Module]:
    """The modules with models of transformers that an object is, or that its attributes are."""
    if isinstance(holder, nn.Module):
        values: list[Any] = [holder]
    else:
        attributes = vars(holder).values()
        values = [part for value in attributes for part in (value if isinstance(value, (list, tuple)) else [value])]
    for value in values:
        if isinstance(value, nn.Module) and any(isinstance(module, PreTrainedModel) for module in value.modules()):
            yield value
