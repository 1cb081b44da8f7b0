"""Hooks that let models compute no padding; `RemovedPadding` counts what they did, and takes them away."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from transformers import PreTrainedModel

from quadrat.model.attention import restore_names
from quadrat.model.calls import Counts
from quadrat.model.forward import restore_forward, set_forward
from quadrat.model.hooks import Hooks, hooks_of
from quadrat.model.tokenwise import TokenHooks


class RemovedPadding:
    """The padding that models do not compute: what `quadrat.remove_padding` returns.

    `print` shows what was done. `undo`, or the end of a `with` block, lets the models compute padding again.

    Args:
        models: modules with models of transformers.
        counts: what their hooks did.
        undoing: called by `undo`, too.

    Examples:
        >>> import quadrat
        >>> from transformers import BertConfig, BertModel
        >>> model = BertModel(BertConfig(vocab_size=99, hidden_size=32, num_attention_heads=4, num_hidden_layers=1))
        >>> removed = quadrat.remove_padding(model)
        >>> print(removed)
        No batch with padding came yet: the first of each kind is computed both ways and compared.
        >>> removed.undo()
    """

    def __init__(
        self, models: Iterable[Any], counts: Iterable[Counts], undoing: Iterable[Callable[[], None]] = ()
    ) -> None:
        self._models, self._counts, self._undoing = list(models), list(counts), list(undoing)

    @property
    def computed(self) -> int:
        """The number of tokens that were computed, of batches whose padding was removed."""
        return sum(counts.computed for counts in self._counts)

    @property
    def removed(self) -> int:
        """The number of places with padding in these batches."""
        return sum(counts.removed for counts in self._counts)

    @property
    def shared(self) -> int:
        """The number of real tokens that were not computed either, because other rows begin with the same ones."""
        return sum(counts.shared for counts in self._counts)

    @property
    def left(self) -> list[str]:
        """For each kind of batch that is computed as it was, a sentence that says why."""
        return [sentence for counts in self._counts for sentence in counts.left]

    def undo(self) -> None:
        """Let the models compute padding again."""
        for model in self._models:
            for module in model.modules():
                restore_forward(module)
                for hooks in (module._forward_pre_hooks, module._forward_hooks):
                    for key, hook in list(hooks.items()):
                        if isinstance(getattr(hook, "__self__", None), (Hooks, TokenHooks)):
                            del hooks[key]
            restore_names(model)
        for undo in self._undoing:
            undo()

    def __enter__(self) -> RemovedPadding:
        return self

    def __exit__(self, *error: object) -> None:
        self.undo()

    def __str__(self) -> str:
        ways = dict.fromkeys(sentence for counts in self._counts for sentence in counts.ways)
        if not ways and not self.left:
            return "No batch with padding came yet: the first of each kind is computed both ways and compared."
        share = self.removed / max(self.computed + self.shared + self.removed, 1)
        counted = f"{self.computed:,} tokens were computed, {self.removed:,} of padding were not ({share:.0%})"
        counted += f", nor {self.shared:,} that rows share" if self.shared else ""
        return ". ".join([*ways, *([counted] if self.computed else []), *self.left]) + "."


def hook_models(models: Iterable[Any]) -> list[Counts]:
    """Let modules, and the models of transformers within them, compute no padding; returns what their hooks count."""
    counts: dict[Counts, None] = {}
    for model in models:
        of_model = Counts()
        for module in model.modules():
            if not isinstance(module, PreTrainedModel):
                continue
            hooks = hooks_of(module)
            if hooks is None:
                hooks = Hooks(of_model)
                module.register_forward_pre_hook(hooks.before, with_kwargs=True)
                module.register_forward_hook(hooks.after, with_kwargs=True, always_call=True, prepend=True)
                set_forward(module)
            counts[hooks.counts] = None
    return list(counts)
