"""Fixtures of the command's tests; what tests call by name is in customers.py."""

from customers import colour_run, shop, walksum

__all__ = ["colour_run", "shop", "walksum"]
