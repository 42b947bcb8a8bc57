"""Sparse elimination: order, pattern, numbers, triangular solves, entries of the inverse."""
