"""Functions over ragged data: the kernels with a Python face."""
