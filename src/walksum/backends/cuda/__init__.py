"""Kernels for NVIDIA GPUs: Triton, and CUDA C++ for graphs whose columns fit into shared memory."""
