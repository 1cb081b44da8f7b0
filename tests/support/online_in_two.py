"""One of two processes that train a GRPOTrainer as TRL does and with `batch_by_tokens`: weights and micro-batches."""

import sys
from pathlib import Path
from typing import Any

import torch

import quadrat
from support.online import trainer_of, weights

FOLDER, LOSS = Path(sys.argv[1]), sys.argv[2]


def trained(*, sorts: bool) -> tuple[Any, list[tuple[int, int]], str]:
    trainer = trainer_of("GRPO", FOLDER / "run", loss_type=LOSS)
    said = str(quadrat.batch_by_tokens(trainer)) if sorts else ""
    seen, loss = [], trainer._compute_loss

    def recording(model: Any, inputs: Any) -> Any:
        mask = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], 1)
        seen.append((len(mask), int(mask.sum(1).max())))
        return loss(model, inputs)

    trainer._compute_loss = recording
    trainer.train()
    return weights(trainer), seen, said


expected, _, _ = trained(sorts=False)
got, micro_batches, said = trained(sorts=True)
rank = torch.distributed.get_rank()
torch.save({"expected": expected, "got": got, "micro_batches": micro_batches, "said": said}, FOLDER / f"{rank}.pt")
