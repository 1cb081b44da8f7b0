"""Uses an installed wheel with nothing beside it but NumPy."""

import sys

import numpy as np

import quadrat
from quadrat.config import show_config

assert "torch" not in sys.modules
rows = quadrat.Ragged.from_rows([[5, 6, 7], [8]])
assert quadrat.pad(rows, padding_side="left").tolist() == [[5, 6, 7], [0, 0, 8]]
assert quadrat.attention_mask(rows).tolist() == [[1, 1, 1], [1, 0, 0]]
assert quadrat.flatten(rows).cu_seqlens.tolist() == [0, 3, 4]
assert sorted(len(row) for row in quadrat.batching.plan_packs([3, 1, 2], max_length=4).to_lists()) == [1, 2]
wide = quadrat.Ragged(np.arange(5000, dtype=np.int64), np.arange(0, 5001, 100))  # long enough for vector registers
assert np.array_equal(quadrat.pad(wide), np.arange(5000).reshape(50, 100))
try:
    quadrat.Ragged(np.arange(3), np.array([0, 5, 3]))
except ValueError:  # of the C++ library in the module
    pass
else:
    raise SystemExit("offsets beyond the values were taken")
try:
    from quadrat import _cuda
except ImportError:  # built without
    pass
else:
    try:
        _cuda.take_tokens(0, 1, 1, 8, 1, 8, device=0, stream=0)
    except ValueError:  # and not an unknown exception, of another module's C++ library
        pass
    else:
        raise SystemExit("a null pointer was taken")
config = show_config()
print(f"{config['compiler'].strip()}, SIMD level {config['SIMD level']}, CUDA {config['CUDA']}")
