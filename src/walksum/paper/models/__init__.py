"""The models this library is compared with, on PyG's layers; :mod:`walksum.training.models` has their names."""
