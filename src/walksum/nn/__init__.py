"""Layers and the model."""

from walksum.nn.bank import PropagateBank
from walksum.nn.block import GLTBlock
from walksum.nn.conv import GLTConv
from walksum.nn.model import GLT
from walksum.nn.predict_then_propagate import PredictThenPropagate
from walksum.nn.propagate import Propagate
from walksum.nn.store import load

__all__ = ["GLTConv", "GLTBlock", "GLT", "Propagate", "PropagateBank", "PredictThenPropagate", "load"]
