"""Triton kernels for float32 on a CUDA device."""
