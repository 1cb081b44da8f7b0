"""Train a small causal language model with FlexAttention and without padding; compare every loss with the padded run.

`quadrat.DataCollatorWithFlattening` joins the rows of a batch into one row, and says where they begin.
`quadrat.varlen.document_block_mask` makes of that the block mask of FlexAttention: which blocks of queries and keys
have nothing to say to one another, and need not be computed. It works it out from the boundaries; `create_block_mask`
of torch asks the mask function about every pair of tokens instead. The tensors are the same.

The script trains the same model twice, on the same batches: padded, with torch's own causal attention, and flattened.
Both predict the same tokens from the same tokens, so their losses are equal at each step, up to the rounding of
float32. If they differ by more than the tolerance, the exit status is 1. On a CPU FlexAttention has no backward: there
the script computes the blocks that the mask lists itself. It takes ten seconds.

    python examples/flex_attention.py
    python examples/flex_attention.py --steps 4 --batch-size 4 --per-package 20
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Callable
from typing import Any

import torch
from corpus import docstrings, train_tokenizer
from torch import nn
from torch.nn.attention.flex_attention import BlockMask, flex_attention

import quadrat

MAX_TOKENS, VOCABULARY = 256, 2000
WIDTH, HEADS, LAYERS = 64, 2, 2
BLOCK = 64
TOLERANCE = 1e-4  # for a loss; rounding changes it by a few millionths

Attention = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.before, self.between = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, hidden: torch.Tensor, attention: Attention) -> torch.Tensor:
        heads = self.qkv(self.before(hidden)).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        hidden = hidden + self.out(attention(*heads).transpose(1, 2).flatten(2))
        return hidden + self.mlp(self.between(hidden))


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(MAX_TOKENS, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, batch: Any, positions: torch.Tensor, attention: Attention) -> torch.Tensor:
        hidden = self.tokens(batch["input_ids"]) + self.positions(positions)
        for layer in self.layers:
            hidden = layer(hidden, attention)
        labels = batch["labels"][:, 1:].flatten()  # each token predicts the next one
        return nn.functional.cross_entropy(self.head(hidden)[:, :-1].flatten(0, 1), labels)


def padded_loss(model: Model, batch: Any) -> torch.Tensor:
    def attention(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        return nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)

    return model(batch, torch.arange(batch["input_ids"].shape[1]), attention)


def flat_loss(model: Model, batch: Any) -> torch.Tensor:
    mask = quadrat.varlen.document_block_mask(batch["cu_seq_lens_q"], block_size=BLOCK)

    def attention(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        return attend(query, key, value, mask)

    return model(batch, batch["position_ids"], attention)


def attend(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: BlockMask) -> torch.Tensor:
    """`flex_attention`; on a CPU, where that has no backward, the listed blocks row by row."""
    if query.is_cuda:
        return flex_attention(query, key, value, block_mask=mask)
    rows, size = [], mask.BLOCK_SIZE[1]
    for row, queries in enumerate(query.split(mask.BLOCK_SIZE[0], dim=2)):
        partial = mask.kv_indices[0, 0, row, : mask.kv_num_blocks[0, 0, row]]
        full = mask.full_kv_indices[0, 0, row, : mask.full_kv_num_blocks[0, 0, row]]
        keys = (torch.cat([partial, full])[:, None] * size + torch.arange(size)).flatten()
        keys = keys[keys < key.shape[2]]
        places = row * mask.BLOCK_SIZE[0] + torch.arange(queries.shape[2])
        seen = mask.mask_mod(0, 0, places[:, None], keys)
        blocks = queries, key[:, :, keys], value[:, :, keys]
        rows.append(nn.functional.scaled_dot_product_attention(*blocks, attn_mask=seen))
    return torch.cat(rows, dim=2)


def train(loss_of: Callable[[Model, Any], torch.Tensor], batches: list[Any], seed: int) -> list[float]:
    """The loss of each step."""
    torch.manual_seed(seed)
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    losses = []
    for batch in batches:
        loss = loss_of(model, batch)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def main() -> int:
    parser = argparse.ArgumentParser(description="Train with FlexAttention, with and without padding.")
    parser.add_argument("--steps", type=int, default=15, help="training steps of each model (default: %(default)s)")
    parser.add_argument("--batch-size", type=int, default=8, help="texts of a batch (default: %(default)s)")
    parser.add_argument("--per-package", type=int, default=50, help="texts of a package (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the weights and the order (default: %(default)s)")
    options = parser.parse_args()
    torch.set_num_threads(1)  # enough for a small model

    texts = docstrings(per_package=options.per_package).texts
    tokenizer = train_tokenizer(texts, vocab_size=VOCABULARY, max_length=MAX_TOKENS)
    rows = [{"input_ids": row} for row in tokenizer(texts, truncation=True)["input_ids"]]
    order = random.Random(options.seed)
    chosen = [order.sample(rows, options.batch_size) for _ in range(options.steps)]

    pad = quadrat.DataCollatorForLanguageModeling(tokenizer, mlm=False)
    flatten = quadrat.DataCollatorWithFlattening(return_flash_attn_kwargs=True)
    padded, flat = [pad(features) for features in chosen], [flatten(features) for features in chosen]
    losses = train(padded_loss, padded, options.seed), train(flat_loss, flat, options.seed)

    print("step  loss, padded  loss, flattened")
    for step, pair in enumerate(zip(*losses, strict=True), start=1):
        print(f"{step:4}  {pair[0]:12.6f}  {pair[1]:15.6f}")
    mask = quadrat.varlen.document_block_mask(flat[-1]["cu_seq_lens_q"], block_size=BLOCK)
    print(f"Of the last batch {mask.sparsity():.0f}% of the blocks of {BLOCK} tokens are not computed.")
    tokens = [sum(batch["input_ids"].numel() for batch in batches) for batches in (padded, flat)]
    print(f"Without padding, a batch has {1 - tokens[1] / tokens[0]:.0%} fewer tokens.")
    difference = max(abs(one - other) for one, other in zip(*losses, strict=True))
    if difference > TOLERANCE:
        print(f"Padded and flattened losses differ by up to {difference:.1e}: too much.", file=sys.stderr)
        return 1
    print(f"Equal losses at all {options.steps} steps: they differ by at most {difference:.1e}.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
