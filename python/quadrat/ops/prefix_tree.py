"""The tree of a batch's rows: what rows that begin alike share is in it once."""

from typing import Any, NamedTuple

from quadrat import _core
from quadrat.ops.tokens import layout_now, take_here
from quadrat.support.columns import explain
from quadrat.support.extras import needs
from quadrat.support.kinds import INT64
from quadrat.support.memory import address_of, empty

with needs("quadrat.ops.prefix_tree"):
    import torch


class PrefixTree(NamedTuple):
    """Nodes in an order in which a parent comes before its children, and all that is below a node follows it at once.

    A flat token is one of `[total]`, where the nodes lie one after the other. All tensors are int64, on the CPU.
    """

    starts: torch.Tensor  # `[nodes]`, the first flat token of each
    lengths: torch.Tensor  # `[nodes]`, in tokens
    parents: torch.Tensor  # `[nodes]`, -1 for a root
    depths: torch.Tensor  # `[nodes]`, the tokens of all ancestors together
    kept: torch.Tensor  # `[cells]`, the places in the flattened mask that are not 0, rising
    token_of_cell: torch.Tensor  # `[cells]`, the flat token that computes each of `kept`
    cell_of_token: torch.Tensor  # `[total]`, the place in the flattened batch of each flat token's first occurrence

    @property
    def total(self) -> int:
        """The number of flat tokens."""
        return len(self.cell_of_token)


def prefix_tree(ids: Any, mask: Any, positions: Any = None, *, shortest: int = 1) -> PrefixTree:
    """Find what the rows of a padded batch share.

    Rows share the tokens from their beginnings on that have the same ids, and the same positions if these are given.
    A node ends where its rows part, or where one of them ends.

    Args:
        ids: `[rows, width]` integers, on the CPU, as all tensors.
        mask: `[rows, width]`, not 0 for the tokens to keep, wherever they are.
        positions: `[rows, width]` integers, if rows may have the same ids at other positions.
        shortest: a node that rows share has as many tokens at least.

    Examples:
        >>> import torch
        >>> from quadrat.ops.prefix_tree import prefix_tree
        >>> tree = prefix_tree(torch.tensor([[5, 6, 7, 8], [5, 6, 9, 0]]), torch.tensor([[1, 1, 1, 1], [1, 1, 1, 0]]))
        >>> tree.lengths.tolist(), tree.parents.tolist()
        ([2, 2, 1], [-1, 0, 0])
        >>> tree.token_of_cell.tolist()
        [0, 1, 2, 3, 0, 1, 4]
    """
    layout = layout_now(mask != 0)
    flat = take_here(ids.long(), layout.indices, 2)
    places = None if positions is None else take_here(positions.long(), layout.indices, 2)
    rows, cells = len(ids), len(flat)
    nodes, node_address = empty("pt", (2 * rows, 4), INT64)
    token_of_cell, token_address = empty("pt", (cells,), INT64)
    cell_of_token, cell_address = empty("pt", (cells,), INT64)
    failure, count, total = _core.prefix_tree(
        (address_of(flat), cells),
        0 if places is None else address_of(places),
        (address_of(layout.cu_seqlens), rows + 1),
        shortest,
        node_address,
        token_address,
        cell_address,
    )
    if failure is not None:
        raise ValueError(explain(failure))
    starts, lengths, parents, depths = nodes[:count].unbind(1)
    first_cells = take_here(layout.indices, cell_of_token[:total], 1)
    return PrefixTree(starts, lengths, parents, depths, layout.indices, token_of_cell, first_cells)
