"""Attention of rows side by side on a CPU, or of a tree of rows: each token sees its node, and all of the nodes above.

Nodes lie in the flat order one after the other, and all that is below a node follows it at once. What a node's keys
meet is therefore two runs of queries: its own tokens, and those below it, without a mask. No key is copied. The results
of a token are joined by the logarithms of their sums; with the joined result and sum, derivatives of parts add up to
that of the whole, as in ring attention. Rows that share nothing are nodes without parents.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch.autograd.function import once_differentiable

try:
    _attend: Any = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default
    _attend_backward: Any = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward.default
except AttributeError:  # before torch 2.3
    _attend = None


class Meeting(NamedTuple):
    """Runs of queries and keys that meet in one call."""

    queries: slice
    keys: slice
    nodes: int = 0  # of one length, side by side, that each meet themselves; 0: all keys are above
    causal: bool = False  # a query sees the keys of its node up to itself
    distance: int = 0  # how many tokens along the path the first key is before the first query
    window: int | None = None  # a query sees keys that are fewer tokens before it; None: all of them


def available() -> bool:
    """True where torch has the kernel."""
    return _attend is not None


def meetings(
    starts: Sequence[int],
    lengths: Sequence[int],
    parents: Sequence[int],
    depths: Sequence[int],
    window: int | None = None,
    *,
    causal: bool = True,
) -> list[Meeting]:
    """The meetings of a tree, those of nodes with themselves first: once a batch, for all layers with this window.

    Args:
        starts: the first token of each node; nodes are in the order of `quadrat.ops.prefix_tree`.
        lengths: the tokens of each node.
        parents: the node above each; -1 for a root.
        depths: the tokens above each node.
        window: how many tokens of its path a token sees, itself included; None: all of them.
        causal: whether a token sees its node up to itself, or all of it; then there are no parents and no window.
    """
    if window is not None:
        starts, lengths, parents, depths = _split(starts, lengths, parents, depths, window)
    count = len(starts)
    ends = [start + length for start, length in zip(starts, lengths, strict=True)]
    below, deepest = list(range(1, count + 1)), [depth + n for depth, n in zip(depths, lengths, strict=True)]
    for node in reversed(range(count)):  # to the node after all that are below, and how far down these go
        if (parent := parents[node]) >= 0:
            below[parent], deepest[parent] = max(below[parent], below[node]), max(deepest[parent], deepest[node])
    result = list(_own(starts, lengths, causal=causal))
    for node in range(count):
        keys, under = slice(starts[node], ends[node]), range(node + 1, below[node])
        if window is None or deepest[node] - depths[node] <= window:
            if under:
                result.append(Meeting(slice(ends[node], ends[under[-1]]), keys))
            continue
        for other in under:
            away = depths[other] - depths[node]
            unseen = max(0, away - window + 1)  # keys that are too far from all queries
            seeing = min(lengths[other], lengths[node] - 1 + window - away)  # queries that are near enough to a key
            if unseen < lengths[node] and seeing > 0:
                queries, distance = slice(starts[other], starts[other] + seeing), away - unseen
                hides = distance + seeing > window
                seen = slice(keys.start + unseen, keys.stop)
                result.append(Meeting(queries, seen, distance=distance, window=window if hides else None))
    return result


_Nodes = tuple[list[int], list[int], list[int], list[int]]


def _split(
    starts: Sequence[int], lengths: Sequence[int], parents: Sequence[int], depths: Sequence[int], most: int
) -> _Nodes:
    """The same tree with nodes of at most so many tokens, so that no node needs a mask for itself."""
    split: _Nodes = [], [], [], []
    last: list[int] = []  # part of each node
    for start, length, parent, depth in zip(starts, lengths, parents, depths, strict=True):
        above = -1 if parent < 0 else last[parent]
        for at in range(0, length, most):
            part = start + at, min(most, length - at), above, depth + at
            for numbers, number in zip(split, part, strict=True):
                numbers.append(number)
            above = len(split[0]) - 1
        last.append(above)
    return split


def _own(starts: Sequence[int], lengths: Sequence[int], *, causal: bool) -> Iterator[Meeting]:
    node = 0
    while node < len(starts):
        after = node + 1
        while after < len(starts) and lengths[after] == lengths[node]:
            after += 1
        run = slice(starts[node], starts[node] + (after - node) * lengths[node])
        yield Meeting(run, run, after - node, causal)
        node = after


def tree_attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, tree: Sequence[Meeting], *, scale: float | None = None
) -> torch.Tensor:
    """Attend along the paths of a tree.

    Args:
        query: `[1, heads, tokens, dim]`, floating point, on the CPU.
        key: `[1, kv_heads, tokens, dim]`; each head serves `heads / kv_heads` heads of the queries.
        value: as `key`.
        tree: what `meetings` returns.
        scale: what products are multiplied with; None: `dim ** -0.5`.

    Returns:
        `[1, heads, tokens, dim]`.
    """
    dtype = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else query.dtype
    dtype = query.dtype if query.dtype == torch.float64 else dtype
    query, key, value = (_dense(tensor.to(dtype)) for tensor in (query, key, value))
    return _TreeAttention.apply(query, key, value, (tree, scale))  # type: ignore[no-untyped-call, no-any-return]


class _TreeAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, query: Any, key: Any, value: Any, options: Any) -> Any:
        tree, scale = options
        _, heads, tokens, dim = query.shape
        groups = heads // key.shape[1]
        exact = torch.promote_types(query.dtype, torch.float32)
        out = query.new_empty(1, tokens, heads, dim, dtype=exact).transpose(1, 2)
        sums = query.new_empty(1, tokens, heads, dtype=exact).transpose(1, 2)  # logarithms, of each query and head
        for meeting in tree:
            cut = _cut(meeting, groups, query, key, value)
            part, part_sums = _attend(*cut, 0.0, meeting.causal, scale=scale, attn_mask=_mask(meeting, query))
            result, result_sums = _queries(out, meeting, groups), _queries(sums, meeting, groups)
            if meeting.nodes:
                result.copy_(part)
                result_sums.copy_(part_sums)
            else:  # both are averages, which weigh as much as their sums
                result.lerp_(part.to(exact), torch.sigmoid(part_sums - result_sums).unsqueeze(-1))
                result_sums.copy_(torch.logaddexp(result_sums, part_sums))
        out = out.to(query.dtype)
        ctx.save_for_backward(query, key, value, out, sums)
        ctx.tree, ctx.scale = tree, scale
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Any) -> Any:
        query, key, value, out, sums = ctx.saved_tensors
        groups = query.shape[1] // key.shape[1]
        gradient = _dense(gradient)
        gradients = [torch.empty_like(tensor) for tensor in (query, key, value)]
        for meeting in ctx.tree:
            cut, mask = _cut(meeting, groups, query, key, value), _mask(meeting, query)
            of_out, result, logs = (_queries(tensor, meeting, groups) for tensor in (gradient, out, sums))
            options = {"scale": ctx.scale, "attn_mask": mask}
            parts = _attend_backward(of_out, *cut, result, logs, 0.0, meeting.causal, **options)
            targets = _queries(gradients[0], meeting, groups), *(_keys(whole, meeting) for whole in gradients[1:])
            parts = parts[0], *(_ungrouped(part, meeting, groups) for part in parts[1:])
            for target, part in zip(targets, parts, strict=True):
                target.copy_(part) if meeting.nodes else target.add_(part)
        return *gradients, None


def _dense(tensor: Any) -> Any:
    return tensor if tensor.stride(-1) == 1 else tensor.contiguous()  # the kernel reads heads as if they were


def _queries(tensor: Any, meeting: Meeting, groups: int) -> Any:
    """A view of what queries have: `[nodes, heads, tokens, ...]`; of keys above, `[groups, kv_heads, tokens, ...]`."""
    run = tensor[0, :, meeting.queries]
    if meeting.nodes:
        return run.unflatten(1, (meeting.nodes, -1)).transpose(0, 1)
    return run.unflatten(0, (-1, groups)).transpose(0, 1)


def _keys(tensor: Any, meeting: Meeting) -> Any:
    """A view of what keys have: `[nodes, kv_heads, tokens, ...]`, one node for all if they are above."""
    return tensor[0, :, meeting.keys].unflatten(1, (meeting.nodes or 1, -1)).transpose(0, 1)


def _cut(meeting: Meeting, groups: int, query: Any, key: Any, value: Any) -> list[Any]:
    """Queries, keys and values of a meeting, with as many heads each."""
    pair = [_keys(tensor, meeting) for tensor in (key, value)]
    if not meeting.nodes:
        pair = [tensor.expand(groups, -1, -1, -1) for tensor in pair]
    elif groups > 1:
        pair = [tensor.repeat_interleave(groups, 1) for tensor in pair]
    return [_queries(query, meeting, groups), *pair]


def _ungrouped(gradient: Any, meeting: Meeting, groups: int) -> Any:
    """The sum over the heads that a head of the keys serves."""
    if groups == 1:
        return gradient
    return gradient.unflatten(1, (-1, groups)).sum(2) if meeting.nodes else gradient.sum(0, keepdim=True)


def _mask(meeting: Meeting, query: Any) -> Any:
    """What is added to the products: -inf where a key is out of a window."""
    if meeting.window is None:
        return None
    rows, columns = (torch.arange(run.stop - run.start) for run in (meeting.queries, meeting.keys))
    hidden = rows[:, None] + meeting.distance - columns >= meeting.window
    return torch.zeros(hidden.shape, dtype=query.dtype).masked_fill_(hidden, -torch.inf)
