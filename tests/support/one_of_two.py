"""Runs a script as one of the processes of `torchrun`: python one_of_two.py SCRIPT [arguments].

A process that ends while a model holds the threads of its process group may abort, so this one ends at once.
"""

import gc
import os
import runpy
import sys

import torch

sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
gc.collect()
if torch.distributed.is_initialized():
    torch.distributed.destroy_process_group()
sys.stdout.flush()
sys.stderr.flush()
os._exit(0)
