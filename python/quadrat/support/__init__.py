"""What several rooms need: extras, generators, memory, mappings and the launcher of the CUDA kernels."""
