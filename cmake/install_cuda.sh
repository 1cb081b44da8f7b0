#!/bin/sh
# For the containers that wheels are built in: NVIDIA's compiler and static run time, unless QUADRAT_CUDA is OFF.
# CUDA 12.8 has all architectures of csrc/cuda/CMakeLists.txt, and runs with the drivers of every CUDA 12.
set -eu
if [ "${QUADRAT_CUDA:-ON}" = OFF ]; then
    exit 0
fi
case $(uname -m) in
    x86_64) folder=x86_64 ;;
    aarch64) folder=sbsa ;;
esac
dnf config-manager --add-repo "https://developer.download.nvidia.com/compute/cuda/repos/rhel8/$folder/cuda-rhel8.repo"
dnf install --assumeyes --quiet cuda-nvcc-12-8 cuda-cudart-devel-12-8
ln -sfn /usr/local/cuda-12.8 /usr/local/cuda
