"""Numbers behind the pictures: what J^-1 does to a graph. Numerics only, no drawing."""
