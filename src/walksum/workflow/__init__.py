"""From tables to a run and its predictions: what the command does, as Python functions."""
