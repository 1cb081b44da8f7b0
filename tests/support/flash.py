"""What `flash_attn.bert_padding` gives, in plain PyTorch: the oracles of `quadrat.bert_padding`."""

from typing import Any

import torch
from torch.nn import functional


def unpad_input(hidden_states: Any, attention_mask: Any, unused_mask: Any = None) -> tuple[Any, ...]:
    together = attention_mask if unused_mask is None else attention_mask + unused_mask
    lengths = together.sum(dim=-1, dtype=torch.int32)
    used = attention_mask.sum(dim=-1, dtype=torch.int32)
    indices = torch.nonzero(together.flatten(), as_tuple=False).flatten()
    longest = int(lengths.max()) if len(lengths) else 0
    cu_seqlens = functional.pad(torch.cumsum(lengths, dim=0, dtype=torch.int32), (1, 0))
    tokens = hidden_states.reshape(-1, *hidden_states.shape[2:])[indices]
    return tokens, indices, cu_seqlens, longest, used


def index_put_first_axis(values: Any, indices: Any, first_axis_dim: int) -> Any:
    out = values.new_zeros((first_axis_dim, *values.shape[1:]))
    return out.index_put((indices.long(),), values)


def pad_input(hidden_states: Any, indices: Any, batch: int, seqlen: int) -> Any:
    out = index_put_first_axis(hidden_states, indices, batch * seqlen)
    return out.reshape(batch, seqlen, *hidden_states.shape[1:])


def unpad_input_for_concatenated_sequences(hidden_states: Any, lengths: Any) -> tuple[Any, ...]:
    total, places = lengths.sum(dim=-1), torch.arange(lengths.shape[-1], device=lengths.device)
    indices = torch.nonzero((places < total[:, None]).flatten()).flatten()
    found = lengths.flatten()[torch.nonzero(lengths.flatten()).flatten()]
    longest = int(found.max()) if len(found) else 0
    cu_seqlens = functional.pad(torch.cumsum(found, dim=0, dtype=torch.int32), (1, 0))
    return hidden_states.reshape(-1, *hidden_states.shape[2:])[indices], indices, cu_seqlens, longest


def assert_same(got: Any, expected: Any) -> None:
    """The same values, dtypes, shapes and Python types."""
    assert len(got) == len(expected)
    for mine, theirs in zip(got, expected, strict=True):
        assert type(mine) is type(theirs)
        if isinstance(theirs, torch.Tensor):
            assert (mine.dtype, mine.shape, mine.device) == (theirs.dtype, theirs.shape, theirs.device)
            assert torch.equal(mine, theirs)
        else:
            assert mine == theirs
