"""Kernels for NVIDIA GPUs: Triton, and CUDA C++ for graphs whose columns fit into shared memory.

The states of a column of a solve are numbered here, for both and for the host. Of two columns that ended, the one in
the larger state ended worse.
"""

ACTIVE = 0
CLAIMED = 1  # converged by CG's own recursion; waits for the true residual
VERIFIED = 2
STALLED = 4
EXHAUSTED = 5  # no steps left
INDEFINITE = 6  # J is not positive definite
OVERFLOW = 7  # J and h are finite; mu, or J scaled to a unit diagonal, leaves the range of float32
NONFINITE = 8

STATES = {name: value for name, value in vars().items() if name.isupper()}
