"""Kernels for the CPU, in numba.

Solvers: products, dic (conjugate gradients, in the order of sweep_order), chebyshev, gabp, gabp_sequential, and
elimination in ldl. Training: couplings (learned designs), node_linear, sparse_rows, dropout. What they are written
with: compile (``jit``), numba_api, simd (rows in vector registers), tiling, packing, pointers, threads.
"""
