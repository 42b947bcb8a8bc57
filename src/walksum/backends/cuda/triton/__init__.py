"""Triton kernels for float32 on a CUDA device.

products has the functions of every backend. spmm, matrix and plan are J times a vector; cg and scalars conjugate
gradients on top of it; gabp belief propagation; edges sums and dot products over edges; couplings and layer_norm are
for training; launch starts kernels.
"""
