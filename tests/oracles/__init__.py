"""One naive, readable NumPy function per kernel: the oracle of the tests.

A kernel's function has the same name here, in csrc/kernels and in tests/kernels. A CUDA kernel is named after the
function that it implements, or does what several of them do.
"""

from oracles.batches import *  # noqa: F403
from oracles.draws import *  # noqa: F403
from oracles.rows import *  # noqa: F403
from oracles.trees import *  # noqa: F403
