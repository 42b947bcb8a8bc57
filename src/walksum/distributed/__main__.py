"""``torchrun --nproc-per-node 4 -m walksum.distributed train --dataset pubmed``."""

import sys

from walksum.distributed.command import main

if __name__ == "__main__":
    sys.exit(main())
