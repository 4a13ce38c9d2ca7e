"""The first of many numbers, without sorting the others."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

FEW: Final = 4
"""A sort of four times as many as are wanted costs no more than looking on."""


def foremost(values: Numbers, order: Numbers, size: int) -> Flags:
    """Which are the highest ``size``; equals by ``order``, the highest first, and those that this tells apart no
    more."""
    if len(values) <= size:
        return np.ones(len(values), np.bool_)
    cut = nth_best(values, size)
    chosen = values > cut
    equals = np.flatnonzero(values == cut)
    wanted = size - int(np.count_nonzero(chosen))
    if len(equals) > wanted:
        # All of them may be equal.
        among = order[equals]
        equals = equals[among >= nth_best(among, wanted)]
    chosen[equals] = True
    return chosen


def nth_best(values: Numbers, n: int) -> float:
    """The ``n``-th highest of at least so many values.

    By halving the range until few are left: ``partition`` alone takes a hundred times as long where most are equal.
    """
    while len(values) > FEW * n:
        low, high = float(values.min()), float(values.max())
        if low == high:
            return low
        middle = low + (high - low) / 2
        if middle >= high:
            middle = low
        upper = values[values > middle]
        if len(upper) >= n:
            values = upper
        else:
            n -= len(upper)
            values = values[values <= middle]
    return float(np.sort(values)[-n])
