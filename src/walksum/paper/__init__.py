"""All that makes the numbers, tables and figures of the paper again: compared models, sweeps, reports."""
