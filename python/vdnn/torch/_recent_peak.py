"""An upper bound of the peak of tensors on a GPU since the last call; door/recent_peak.h explains it."""

from __future__ import annotations

from typing import Callable, NamedTuple


class MemoryFigures(NamedTuple):
    """Bytes of tensors as counted by an allocator."""

    current: int
    peak: int  # since the program last reset it
    allocated: int  # in total, or since the program last reset it


class RecentPeak:
    def __init__(self, figures: Callable[[], MemoryFigures]) -> None:
        self._figures = figures
        self._last = figures()

    def restart(self) -> None:
        """Starts a new stretch."""
        self._last = self._figures()

    def take(self) -> tuple[int, int]:
        """The peak of the stretch and the current bytes."""
        before, now = self._last, self._figures()
        self._last = now
        if now.allocated < before.allocated:
            return now.current, now.current  # the program has reset the counters
        # If the allocator does not count allocations, only both ends of the stretch are known.
        bound = max(before.current + now.allocated - before.allocated, now.current)
        return bound if now.peak < before.peak else min(bound, now.peak), now.current
