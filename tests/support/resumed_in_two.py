"""One of two processes that train on streams, stop and go on."""

import multiprocessing
import sys
from pathlib import Path
from typing import Any

import torch

from support.resumed import STREAMS, of_datasets, train

FOLDER = Path(sys.argv[1])
STREAMS["4 shards"] = lambda: of_datasets(4)
APART = {"accelerator_config": {"dispatch_batches": False}}
RUNS = [
    ("3 shards", {"per_device_train_batch_size": 3}),  # one process reads for both
    ("4 shards", {**APART, "per_device_train_batch_size": 3, "dataloader_num_workers": 2}),  # each has shards
    ("batches", {**APART, "gradient_accumulation_steps": 2, "max_steps": 20}),  # both read all, and take turns
    ("batches", {**APART, "dataloader_num_workers": 2}),
]


if __name__ == "__main__":
    multiprocessing.set_start_method("forkserver")  # workers forked beside gloo's threads may wait for ever
    multiprocessing.set_forkserver_preload(["support.resumed"])
    torch.distributed.init_process_group("gloo")
    for number, (stream, given) in enumerate(RUNS):
        # transformers 4.57 cannot restore an optimizer in several processes without a GPU.
        options: Any = {"ddp_backend": "gloo", "save_only_model": True, **given}
        whole = train(FOLDER / str(number), stream, **options)
        for stop in (3, 17):
            place = FOLDER / f"{number}-{stop}"
            first = train(place, stream, stop=stop, **options)
            torch.distributed.barrier()  # the first process writes the checkpoint, and the others do not wait for it
            rest = train(place, stream, resume=True, **options)
            assert first.record + rest.record == whole.record, (stream, options, stop)
            assert first.epochs + rest.epochs == whole.epochs
