"""Sparse elimination, J = L D L^T: order, pattern, numbers, triangular solves."""
