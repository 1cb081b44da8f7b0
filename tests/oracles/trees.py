"""Oracles of the kernels for rows that begin alike."""

from collections.abc import Hashable, Sequence

import numpy as np


def prefix_tree(
    rows: Sequence[Sequence[Hashable]], shortest: int
) -> tuple[list[tuple[int, int, int, int]], list[int], list[int]]:
    """The nodes of a tree of rows, the flat token of each cell, and the first cell of each flat token.

    A node: its first token, how many there are, its parent, and the tokens of its ancestors. Below a node, rows are in
    one group if their next `shortest` tokens are the same; what all of a group have in common is a node.
    """
    nodes: list[tuple[int, int, int, int]] = []
    first_cell = [0, *np.cumsum([len(row) for row in rows]).tolist()]
    token_of_cell, cell_of_token = [-1] * first_cell[-1], list[int]()

    def grow(members: Sequence[int], depth: int, parent: int) -> None:
        groups: dict[Hashable, list[int]] = {}
        for row in members:
            beginning = tuple(rows[row][depth : depth + shortest])
            if beginning:
                groups.setdefault(beginning if len(beginning) == shortest else row, []).append(row)
        for group in groups.values():
            least = min(len(rows[row]) for row in group)
            end = next((at for at in range(depth, least) if len({rows[row][at] for row in group}) > 1), least)
            start, node = len(cell_of_token), len(nodes)
            nodes.append((start, end - depth, parent, depth))
            cell_of_token.extend(range(first_cell[group[0]] + depth, first_cell[group[0]] + end))
            for row in group:
                token_of_cell[first_cell[row] + depth : first_cell[row] + end] = range(start, len(cell_of_token))
            grow(group, end, node)

    grow(range(len(rows)), 0, -1)
    return nodes, token_of_cell, cell_of_token
