"""Neighbours in an order in which threads of a GPU, whose rows are read side by side, seldom ask one bank of memory."""

from __future__ import annotations

import numpy as np

from walksum.backends.cpu.compile import jit

BANKS = WARP = 32


@jit
def bank_order(order, indptr, banks, longest):
    """For each slot of the graph's rows the slot that it takes its neighbour from.

    Args:
        order: the row of each thread, a warp after the other; -1 for none.
        indptr: where the slots of each row begin.
        banks: the bank of each slot's neighbour.
        longest: warps with a longer row stay as they are: there a warp waits for that row alone.
    """
    slots = np.arange(banks.size)
    asked, taken = np.empty((longest, BANKS), np.int64), np.empty(longest, np.bool_)
    for first in range(0, order.size, WARP):
        most = 0
        for row in order[first : first + WARP]:
            if row >= 0:
                most = max(most, indptr[row + 1] - indptr[row])
        if most <= 1 or most > longest:
            continue
        asked[:most] = 0  # how often each bank is, at each turn
        for row in order[first : first + WARP]:
            if row < 0:
                continue
            begin, length = indptr[row], indptr[row + 1] - indptr[row]
            taken[:length] = False
            for n in range(length):  # every neighbour takes the turn, of those left, at which its bank is asked least
                bank, best = banks[begin + n], -1
                for turn in range(length):
                    if not taken[turn] and (best < 0 or asked[turn, bank] < asked[best, bank]):
                        best = turn
                taken[best] = True
                asked[best, bank] += 1
                slots[begin + best] = begin + n
    return slots
