"""Calls a function as one of the processes of `torchrun`: see `isolated.in_two`.

A process that ends while a model holds the threads of its process group may abort, so this one ends at once.
"""

import gc
import importlib
import os
import sys
from pathlib import Path

import torch

if __name__ == "__main__":
    module, name, folder, *arguments = sys.argv[1:]
    result = getattr(importlib.import_module(module), name)(Path(folder), *arguments)
    torch.save(result, Path(folder, f"{os.environ['RANK']}.pt"))
    gc.collect()
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
