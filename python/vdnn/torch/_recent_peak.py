"""The most that tensors took on a GPU since the last time that it was asked: door/recent_peak.h says how, and why it is an upper
bound."""

from __future__ import annotations

from typing import Callable, NamedTuple


class MemoryFigures(NamedTuple):
    """Bytes of tensors, as an allocator counts them."""

    current: int
    peak: int  # since the program has reset it
    allocated: int  # ever, or since the program has reset it


class RecentPeak:
    def __init__(self, figures: Callable[[], MemoryFigures]) -> None:
        self._figures = figures
        self._last = figures()

    def restart(self) -> None:
        """Of what comes."""
        self._last = self._figures()

    def take(self) -> tuple[int, int]:
        """The peak and what tensors take now."""
        before, now = self._last, self._figures()
        self._last = now
        if now.allocated < before.allocated:
            return now.current, now.current  # it was reset
        # Where the allocator does not count what was allocated, both ends of the stretch are known.
        bound = max(before.current + now.allocated - before.allocated, now.current)
        return bound if now.peak < before.peak else min(bound, now.peak), now.current
