"""Kernels for the CPU, in numba."""
