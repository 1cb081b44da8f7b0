"""The cost of rows, its limit for a batch, and rows grouped into batches within it."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from quadrat import _core
from quadrat.ops._philox import number_below
from quadrat.ragged.ragged import Ragged
from quadrat.ragged.take import copy_rows
from quadrat.support.arrays import IntArray
from quadrat.support.extras import needs

_SKIPPING = ("flash", "flex")  # attention that does not compute what a window masks
_UNFUSED = 4  # how often attention that stores its scores counts: memory limits it
_DROPOUTS = ("attention_dropout", "attention_probs_dropout_prob", "attn_pdrop")  # of scores
_FULL, _WINDOWED = ("full_attention", "attention"), ("sliding_attention", "chunked_attention")
_BATCHES_OF_A_WINDOW, _FEWEST_OF_A_WINDOW = 64, 2048
MOST_ROWS = (1 << 62) - 1


@dataclass(frozen=True)
class AttentionCost:
    """The cost of a row in a batch, in tokens: a row of width w costs `w * (1 + w / crossover)`.

    Attention compares each token with all tokens of its row; all else takes time in proportion to the tokens of a
    batch. Give it, or only the crossover, as `attention` to `TokenBudgetBatchSampler`, `batch_by_tokens` or
    `BatchedStream`: batches then cost the same time, not only the same tokens.

    Attributes:
        crossover: the width, in tokens, at which attention takes as much time as the rest of the model.
        windowed: the share of layers whose attention has a window, from 0 to 1.
        window: how many tokens each token of these layers is compared with, at most.

    Examples:
        >>> from quadrat.batching import AttentionCost
        >>> AttentionCost(crossover=1024).of_rows([64, 1024]).tolist()
        [68, 2048]
        >>> from transformers import LlamaConfig
        >>> sizes = {"hidden_size": 256, "num_attention_heads": 4, "num_hidden_layers": 4, "intermediate_size": 768}
        >>> AttentionCost.of(LlamaConfig(**sizes))
        AttentionCost(crossover=1664.0, windowed=0.0, window=0)
    """

    crossover: float
    windowed: float = 0.0
    window: int = 0

    @classmethod
    def of(cls, model: Any) -> AttentionCost:
        """The cost for a model of transformers, or for its config.

        For a token of a row of width w, a forward pass takes `2 * N + 4 * L * d * w` floating-point operations
        (Chowdhery et al., "PaLM", 2022, appendix B), and a backward pass twice as many: N parameters that a token is
        multiplied with, embeddings left out, and of experts only those that are chosen; L layers; d, the heads times
        their size. The crossover is `N / (2 * L * d)`. Attention that stores its scores (`eager`; `sdpa` with dropout
        on a CPU) counts four times, which is a rough estimate. A window counts where attention skips what it masks
        (FlashAttention, FlexAttention).

        Args:
            model: a model, whose head counts too, or a config.

        Raises:
            TypeError: for an object without a config, and for models with an encoder and a decoder, or without
                attention: give a crossover as a number.
        """
        model = getattr(model, "transformers_model", None) or model  # of sentence-transformers
        config = getattr(model, "config", model)
        if not hasattr(config, "get_text_config"):
            raise TypeError(f"a {type(model).__name__} has no config of transformers: give the crossover as a number")
        text = config.get_text_config()
        heads = getattr(text, "num_attention_heads", None)
        if not isinstance(heads, int) or getattr(text, "is_encoder_decoder", False):
            why = "has an encoder and a decoder" if heads else "has no attention heads"
            raise TypeError(f"a model of {type(config).__name__} {why}: give the crossover as a number")
        kinds = getattr(text, "layer_types", None) or getattr(text, "layers_block_type", None)
        window = getattr(text, "sliding_window", None) or getattr(text, "attention_chunk_size", None) or 0
        if kinds is None:
            kinds = (_WINDOWED[:1] if window else _FULL[:1]) * text.num_hidden_layers
        full, windowed = (sum(kind in which for kind in kinds) for which in (_FULL, _WINDOWED))
        if not full + windowed:
            raise TypeError(f"a model of {type(config).__name__} has no attention: give the crossover as a number")
        size = getattr(text, "head_dim", None) or text.hidden_size // heads
        how = str(getattr(text, "_attn_implementation", None))
        skips = any(name in how for name in _SKIPPING)
        if not hasattr(model, "named_modules") or text is not config:
            model = _model_of_config(text, "eager" if skips else None)
        crossover = _multiplied(model, text) / (2 * (full + windowed) * heads * size)
        how = how if skips else str(getattr(model.config, "_attn_implementation", None))
        if how == "eager" or (how == "sdpa" and any(getattr(text, name, 0) for name in _DROPOUTS) and _on_cpu(model)):
            crossover /= _UNFUSED
        return cls(crossover, *((windowed / (full + windowed), window) if skips and windowed else ()))

    def of_tokens(self, widths: Any) -> Any:
        """The cost of a token in rows of these widths, `[rows]` float64, in tokens of a short row."""
        widths = np.asarray(widths)
        reached = widths * (1 - self.windowed) + np.minimum(widths, self.window) * self.windowed
        return 1 + reached / self.crossover

    def of_rows(self, widths: Any) -> IntArray:
        """The cost of rows of these widths, `[rows]` int64, in tokens. Raises ValueError for one that is too long."""
        costs = np.asarray(widths) * self.of_tokens(widths)
        if costs.size and float(costs.max()) > _core.MOST_BUDGET:
            row = int(costs.argmax())
            raise ValueError(f"row {row} has {widths[row]} tokens, whose cost with {self} is above {_core.MOST_BUDGET}")
        return np.rint(costs).astype(np.int64)  # type: ignore[no-any-return]


def attention_of(value: Any) -> AttentionCost | None:
    """The cost that an argument `attention` means. Raises TypeError or ValueError."""
    if value is None:
        return None
    if isinstance(value, (str, bool)):
        raise TypeError(f"attention must be a number of tokens, or a model or its config, not {value!r}")
    if isinstance(value, AttentionCost):
        cost = value
    else:
        cost = AttentionCost(float(value)) if isinstance(value, (int, float, np.number)) else AttentionCost.of(value)
    number_below(cost.window, "window", 1 << 62)
    if not (0 < cost.crossover < math.inf and 0 <= cost.windowed <= 1):
        raise ValueError(
            f"attention must be a number of tokens above 0, with a share of layers from 0 to 1, not {cost}"
        )
    return cost


def _model_of_config(text: Any, attention: str | None = None) -> Any:
    """A model of a config, without memory for its parameters."""
    with needs("AttentionCost.of"):
        import torch
        from transformers import AutoModel
    with torch.device("meta"):
        return AutoModel.from_config(copy.deepcopy(text), **({"attn_implementation": attention} if attention else {}))


def _multiplied(model: Any, text: Any) -> float:
    """The parameters that each token is multiplied with."""
    import torch

    experts = getattr(text, "num_local_experts", None) or getattr(text, "num_experts", None)
    chosen = (getattr(text, "num_experts_per_tok", None) or 1) / experts if experts else 1.0
    total = 0.0
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.Embedding):
            continue
        sizes = (parameter.numel() for parameter in module.parameters(recurse=False) if parameter.dim() > 1)
        # Weights that are stored with fewer bits have other shapes.
        whole = getattr(module, "in_features", 0) * getattr(module, "out_features", 0)
        total += (whole or sum(sizes)) * (chosen if "experts" in name.split(".") else 1)
    return total


def _on_cpu(model: Any) -> bool:
    """True if a model is on the CPU, or, if it has no memory yet, this machine has no GPU."""
    import torch

    kind = next(model.parameters()).device.type
    return kind == "cpu" or (kind == "meta" and not torch.cuda.is_available())


def require_rows(lengths: Any, purpose: str) -> None:
    """Raises ValueError if there are no rows."""
    if not len(lengths):
        raise ValueError(f"lengths are empty: there are no rows to {purpose}")


def usual_budget(rows: int, lengths: IntArray, multiple_of: int = 1) -> int:
    """As many tokens as so many rows of mean length have, and at least those of the longest row, rounded up."""
    longest = -(-int(lengths.max()) // multiple_of) * multiple_of
    return max(longest, math.ceil(rows * float(lengths.mean())))


def joins_rows(collator: Any) -> bool:
    """True if a batch is one long row, without padding."""
    return bool(getattr(collator, "padding_free", False) or "Flattening" in type(collator).__name__)


class Budget(NamedTuple):
    """The limit of a batch's cost, as the kernels take it."""

    tokens: int
    rows: int
    multiple_of: int  # the width of a padded batch is one of these, or the length of a flat one
    padded: bool  # whether the tokens are rows times the longest, or the sum of lengths

    @classmethod
    def of(cls, max_tokens: Any, padded: Any, max_batch_size: Any, multiple_of: Any) -> Budget:
        """Raises TypeError or ValueError for numbers out of range."""
        tokens = number_below(max_tokens, "max_tokens", _core.MOST_BUDGET + 1, 1)
        rows = MOST_ROWS if max_batch_size is None else number_below(max_batch_size, "max_batch_size", 1 << 62, 1)
        multiple = number_below(multiple_of, "multiple_of", 1 << 61, 1)
        if multiple > tokens:
            raise ValueError(f"multiple_of={multiple} is above max_tokens={tokens}: no batch fits the budget")
        return cls(tokens, rows, multiple, bool(padded))

    def require(self, lengths: IntArray, advice: str) -> None:
        """Raises ValueError if there are no rows, or one is above the budget."""
        require_rows(lengths, "batch")
        longest, multiple = int(lengths.max()), self.multiple_of
        if -(-longest // multiple) * multiple > self.tokens:
            rounded = f" with multiple_of={multiple}" if longest <= self.tokens else ""
            raise ValueError(
                f"row {int(lengths.argmax())} has {longest} tokens, more than max_tokens={self.tokens} allow{rounded}; "
                f"{advice}"
            )

    def priced(self, cost: AttentionCost | None, lengths: IntArray) -> tuple[IntArray, Budget]:
        """The costs of rows of these lengths, and the budget in the same unit: its tokens in rows of median width."""
        if cost is None or not len(lengths):
            return lengths, self
        widths, multiple = lengths, self.multiple_of
        if self.padded and multiple > 1:
            widths = -(-widths // multiple) * multiple
        middle = (len(widths) - 1) // 2
        tokens = round(self.tokens * float(cost.of_tokens(np.partition(widths, middle)[middle])))
        return cost.of_rows(widths), self._replace(tokens=min(tokens, _core.MOST_BUDGET), multiple_of=1)

    def usual_window(self, lengths: IntArray) -> int:
        """The rows of some batches: the last rows of a window are then few of its rows."""
        rows = min(self.rows, self.tokens * len(lengths) // max(int(lengths.sum()), 1))
        return max(_FEWEST_OF_A_WINDOW, min(len(lengths), _BATCHES_OF_A_WINDOW * rows))

    def batched(self, lengths: IntArray, rows: IntArray, window: int) -> IntArray:
        """Batches, `[batches, 3]`: where in `rows` each begins and ends, and its cost. Sorts the rows by windows."""
        batches = np.empty((len(rows), 3), np.int64)
        failure, count = _core.plan_batches(lengths, self, window, rows, batches)
        if failure is not None:
            raise ValueError(f"row {failure[1]} has the length {lengths[failure[1]]}, above {_core.MOST_BUDGET}")
        return batches[:count]

    def balanced(
        self, lengths: IntArray, rows: IntArray, batches: IntArray, *, ranks: int, steps: int, order: IntArray | None
    ) -> IntArray:
        """The batches of all ranks, `[steps, ranks, 3]`; steps in an order, by default that of their first rows."""
        room = np.empty((max(len(batches), steps * ranks), 3), np.int64)
        room[: len(batches)] = batches
        out = np.empty((steps, ranks, 3), np.int64)
        if not _core.balance_batches(lengths, self, rows, room, len(batches), ranks, order, out):
            raise ValueError(f"{len(batches)} batches cannot be shared by {ranks} ranks in {steps} steps")
        return out


def ragged_of(rows: IntArray, batches: IntArray) -> Ragged:
    """The row numbers of batches."""
    bounds = batches[:, :2].ravel()
    offsets = np.concatenate(([0], (bounds[1::2] - bounds[::2]).cumsum()))
    return Ragged(copy_rows(rows, bounds, np.arange(0, len(bounds), 2), int(offsets[-1])), offsets)
