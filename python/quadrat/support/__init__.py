"""Used by several packages: extras, generators, memory, mappings and the launcher of the CUDA kernels."""
