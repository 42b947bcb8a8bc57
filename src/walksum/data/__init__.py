"""Published node classification data and how it is cut into train, validation and test."""

from walksum.data.datasets import digits, load, names
from walksum.data.splits import PROTOCOLS, Split, make_split

__all__ = ["load", "names", "digits", "Split", "make_split", "PROTOCOLS"]
