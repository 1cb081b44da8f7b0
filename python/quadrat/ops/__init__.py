"""Functions on ragged data: the Python interface of the kernels."""
