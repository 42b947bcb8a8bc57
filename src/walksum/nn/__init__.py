"""Layers and the model."""

from walksum.nn.block import GLTBlock
from walksum.nn.conv import GLTConv
from walksum.nn.model import GLT
from walksum.nn.store import load

__all__ = ["GLTConv", "GLTBlock", "GLT", "load"]
