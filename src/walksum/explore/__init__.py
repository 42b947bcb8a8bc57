"""The explorer: a page on this machine that answers why a node got its label. Needs walksum[explore]."""
