"""One of two processes that train with GRPO or RLOO, with and without padding: the weights of both."""

import sys
from pathlib import Path

import torch

from quadrat import remove_padding
from support.families import DECODER, tiny_of
from support.online import trainer_of, weights

FOLDER, NAME = Path(sys.argv[1]), sys.argv[2]
STEPS = {"max_steps": 3, "per_device_train_batch_size": 4, "gradient_accumulation_steps": 4, "num_generations": 4}
trained = []
for removes in (False, True):
    torch.manual_seed(0)
    model = tiny_of("LlamaForCausalLM", DECODER | {"use_cache": False})
    trainer = trainer_of(NAME, FOLDER, model=model, ddp_backend="gloo", gradient_checkpointing=False, **STEPS)
    removed = remove_padding(trainer) if removes else None
    trainer.train()
    trained.append(weights(trainer))
expected, got = trained
saved = {"expected": expected, "got": got, "shared": removed.shared, "says": str(removed)}
torch.save(saved, FOLDER / f"{trainer.args.process_index}.pt")
