"""An upper bound of the peak of tensor bytes on a GPU since the last call; see door/recent_peak.h."""

from __future__ import annotations

from typing import Callable, NamedTuple


class MemoryFigures(NamedTuple):
    """Bytes of tensors as an allocator counts them."""

    current: int
    peak: int  # since the program last reset it
    allocated: int  # in total, or since the program last reset it


class RecentPeak:
    def __init__(self, figures: Callable[[], MemoryFigures]) -> None:
        self._figures = figures
        self._last = figures()

    def restart(self) -> None:
        """Begins a new interval."""
        self._last = self._figures()

    def take(self) -> tuple[int, int]:
        """The bound of the interval's peak, and the current bytes. Begins a new interval."""
        before, now = self._last, self._figures()
        self._last = now
        if now.allocated < before.allocated:
            return now.current, now.current  # the program has reset the counters
        # If the allocator does not count allocations, only the bytes at both ends of the interval are known.
        bound = max(before.current + now.allocated - before.allocated, now.current)
        return bound if now.peak < before.peak else min(bound, now.peak), now.current
