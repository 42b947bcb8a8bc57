"""Sparse elimination: order, pattern, numbers, triangular solves, entries of the inverse.

Once per graph, by symbolic: minimum_degree or partial_order (the order), tree and supernodes (the pattern). Then the
numbers and the triangular solves, in one of three forms: multifrontal and supernodal_sweeps (dense blocks, by blas),
numeric and sweeps (column by column), numeric_groups and sweeps_groups (the same for eight heads at once).
"""
