"""Speed, side by side with the paper's algorithm and with peers.

python -m benchmarks.cpu     # one thread       -> results/bench/cpu.json
python -m benchmarks.gpu     # one CUDA device  -> results/bench/gpu.json
python -m benchmarks.report  # both             -> docs/benchmarks.md
"""
