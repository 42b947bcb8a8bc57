"""Sweeps over many runs: what a run is, where its record is kept, who trains it."""
