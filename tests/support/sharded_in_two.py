"""One of two processes that train a model with and without padding, under DDP or FSDP 2: the weights of both."""

import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from quadrat import remove_padding
from support.families import DECODER, padded_batch, tiny_of, with_labels

FOLDER, WAY = Path(sys.argv[1]), sys.argv[2]


def wrapped(model: Any) -> Any:
    if WAY.startswith("DDP"):
        return torch.nn.parallel.DistributedDataParallel(model)
    from torch.distributed.fsdp import fully_shard

    for layer in model.model.layers:
        fully_shard(layer)
    return fully_shard(model)


def trained(*, removes: bool) -> tuple[dict[str, Any], int]:
    model: Any = tiny_of("LlamaForCausalLM", DECODER)
    removed = remove_padding(model) if removes and "removed" in WAY else None
    model = wrapped(model.train())
    if removes and removed is None:
        removed = remove_padding(model)
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    for step in range(4):
        rank = dist.get_rank()
        # One process proves other forms than the other one, or has no padding and proves nothing.
        others = "other forms" in WAY
        batch = padded_batch(4, 12, seed=2 * step + rank, left=others and step == 2 and rank == 1)
        if others and step == rank:
            batch["attention_mask"].fill_(1)
        loss = model(**with_labels(batch)).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    weights = {name: getattr(one, "full_tensor", lambda one=one: one)() for name, one in model.named_parameters()}
    return {name: one.detach().clone() for name, one in weights.items()}, removed.removed if removed else 0


dist.init_process_group("gloo")
(expected, _), (got, count) = trained(removes=False), trained(removes=True)
torch.save({"expected": expected, "got": got, "removed": count}, FOLDER / f"{dist.get_rank()}.pt")
dist.destroy_process_group()
