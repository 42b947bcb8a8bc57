"""Gaussian belief propagation."""
