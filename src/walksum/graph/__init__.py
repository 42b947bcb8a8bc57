"""Graph: undirected, loop-free, every edge once; owner of every structure derived from it."""

from walksum.graph.cache import as_graph
from walksum.graph.csr import CSR, index_dtype
from walksum.graph.edges import EdgeInput, SparseMatrix
from walksum.graph.graph import Graph
from walksum.graph.spatial import SpatialGraph, spatial_graph

__all__ = ["Graph", "CSR", "EdgeInput", "SparseMatrix", "SpatialGraph", "as_graph", "index_dtype", "spatial_graph"]
