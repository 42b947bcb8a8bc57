"""Speed, side by side with the paper's algorithm and with peers.

python -m benchmarks.cpu      # one thread       -> results/bench/cpu.json
python -m benchmarks.gpu      # one CUDA device  -> results/bench/gpu.json
python -m benchmarks.explore  # the explorer     -> results/bench/explore.json
python -m benchmarks.report   # the first two    -> docs/benchmarks.md and the table of the README
"""
