"""CUDA C++: a whole conjugate-gradient solve in one launch, one group of threads for each column."""
