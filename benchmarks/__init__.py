"""Speed, side by side with the paper's algorithm and with peers.

python -m benchmarks.cpu      # one thread       -> results/bench/cpu.json
python -m benchmarks.gpu      # one CUDA device  -> results/bench/gpu.json
python -m benchmarks.explore  # the explorer     -> results/bench/explore.json
python -m benchmarks.report   # the first two    -> docs/benchmarks.md and the table of docs/results.md

The first two are made of: graphs, problems, contestants, yardstick, peers, truth, floors, measure, timing, steps,
scaling, records, targets, charts. Every other file is a command of its own; its first lines say what it measures.
"""
