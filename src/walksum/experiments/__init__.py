"""The paper's experiments: runs as values, a store that survives anything, sweeps and the paper's tables."""
