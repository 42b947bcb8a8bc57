"""The states of a column of a solve on the GPU, for the Triton kernels, the CUDA C++ and the host alike.

Of two columns that ended, the one in the larger state ended worse.
"""

ACTIVE = 0
CLAIMED = 1  # converged by CG's own recursion; waits for the true residual
VERIFIED = 2
STALLED = 4
EXHAUSTED = 5  # no steps left
INDEFINITE = 6  # J is not positive definite
NONFINITE = 7

STATES = {name: value for name, value in vars().items() if name.isupper()}
