"""Rows that begin alike share their beginnings: each node of the tree of rows is computed once."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from quadrat.model.merged_attention import Meeting, available, meetings
from quadrat.model.rows import Rows, of_last_columns
from quadrat.ops.prefix_tree import PrefixTree, prefix_tree
from quadrat.ops.tokens import put

_SHORTEST = 8  # tokens that are worth a node
_WORTH = 0.9  # of the tokens, at most, are computed where rows share


class SharedRows(Rows):
    """Rows whose shared beginnings lie in the flat batch once: `[1, total]`, nodes of a tree side by side."""

    def __init__(self, shape: tuple[int, int], tree: PrefixTree) -> None:
        longest = int((tree.depths + tree.lengths).max())
        super().__init__(shape, tree.lengths, tree.cell_of_token, longest)
        self._tree, self.shared = tree, len(tree.kept) - tree.total

    def fits(self, mask: Any) -> bool:
        """True for the mask of the rows that the tree was made of."""
        return self.shape == mask.shape and torch.equal(mask.flatten().nonzero()[:, 0], self._tree.kept)

    def order(self) -> Any:
        """The rows of the padded batch, those that share a beginning beside each other."""
        rows, first = torch.unique(self._tree.kept // self.shape[1], return_counts=True)
        return rows[self._tree.token_of_cell[first.cumsum(0) - first].argsort(stable=True)]

    def put(self, values: Any) -> Any:
        """`[1, total, ...]` to `[rows, width, ...]`: each row has the tokens that it shares; gradients add up."""
        return put(values[0].index_select(0, self._tree.token_of_cell), self._tree.kept, self.shape)

    def last_columns(self, columns: int) -> tuple[Rows, Any]:
        """As of `Rows`."""
        count, width = self.shape
        last = self._tree.kept % width >= width - columns
        tokens, places = torch.unique(self._tree.token_of_cell[last], return_inverse=True)
        cells = of_last_columns(self._tree.kept[last], width, columns)
        return _Repeated((count, columns), cells, len(tokens), places), tokens

    def _meet(self, window: int | None, causal: bool) -> list[Meeting]:
        if not causal:
            raise NotImplementedError("only rows of a causal model share their beginnings")
        tree = self._tree
        starts, lengths, parents, depths = (
            numbers.tolist() for numbers in (tree.starts, tree.lengths, tree.parents, tree.depths)
        )
        return meetings(starts, lengths, parents, depths, window)


class _Repeated(Rows):
    """Tokens that go to several places of a padded batch."""

    def __init__(self, shape: tuple[int, int], cells: Any, total: int, tokens: Any) -> None:
        super().__init__(shape, cells[:0], cells, 0)
        self.total, self._tokens = total, tokens

    def put(self, values: Any) -> Any:
        """`[1, total, ...]` to `[rows, width, ...]`."""
        return put(values[0].index_select(0, self._tokens), self.cells, self.shape)


def shared_rows(ids: Any, mask: Any, positions: Any) -> SharedRows | None:
    """The rows of a batch as a tree, if they share a tenth of their tokens and a kernel is there for it."""
    if ids.is_cuda or len(ids) < 2 or not available():
        return None
    positions = torch.arange(mask.shape[1]) if positions is None else positions  # those of its columns
    positions = positions.expand(mask.shape)
    tree = prefix_tree(ids, mask, positions, shortest=_SHORTEST)
    return SharedRows(tuple(mask.shape), tree) if tree.total <= _WORTH * len(tree.kept) else None


def drops(model: Any) -> bool:
    """True for a model in training that drops numbers at random: rows that share would drop the same ones."""
    if not model.training:
        return False
    rates = (
        getattr(model.config, name, 0) for name in vars(model.config) if "dropout" in name or name.endswith("pdrop")
    )
    modules = (module.p for module in model.modules() if isinstance(module, nn.Dropout))
    return any(isinstance(rate, float) and rate > 0 for rate in (*rates, *modules))
