"""Graphs that outgrow one process: parts, exchange of rows, solves and training on torch.distributed."""

from walksum.distributed.files import load_part, save_parts
from walksum.distributed.fitting import PartData, fit
from walksum.distributed.part import GraphPart
from walksum.distributed.partition import Partition, partition
from walksum.distributed.processes import ProcessLost, joined
from walksum.distributed.solving import product

__all__ = ["GraphPart", "PartData", "Partition", "ProcessLost", "fit", "joined", "load_part", "partition"]
__all__ += ["product", "save_parts"]
