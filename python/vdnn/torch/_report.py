"""The figures of the stashes."""

from __future__ import annotations

import dataclasses

from ._hooks import Hooks
from ._sizes import format_size


@dataclasses.dataclass(frozen=True)
class Report:
    """`devices`: statistics of vdnn/stash.h since the program began, by name of the device ("cuda:0")."""

    tier: str
    devices: dict[str, dict[str, int]]

    def __str__(self) -> str:
        if not self.devices:
            return f"vdnn.torch: tier {self.tier}, no tensor was large enough to leave so far"
        return "\n".join(_lines_of(self.tier, device, figures) for device, figures in self.devices.items())


def overlap_of(figures: dict[str, int]) -> float | None:
    """The part of the copies' time in which the compute stream did not wait; None if copies were not timed."""
    copied = figures["copy_nanoseconds"]
    return max(0.0, 1 - figures["wait_nanoseconds"] / copied) if copied else None


def _lines_of(tier: str, device: str, figures: dict[str, int]) -> str:
    overlap = overlap_of(figures)
    lines = [
        f"vdnn.torch: {device}, tier {tier}: {figures['steps']} steps, {figures['repeated_steps']} repeated a learned one, "
        f"{figures['diverged_steps']} diverged from one",
        f"  moved out {format_size(figures['out_bytes'])} ({figures['left']} tensors), "
        f"back {format_size(figures['in_bytes'])}: {figures['fetched_ahead']} ahead of their reader, "
        f"{figures['fetched_late']} late ({figures['late_when_repeated']} in repeated steps)",
        f"  peaks: device {format_size(figures['device_peak_bytes'])}, host {format_size(figures['host_peak_bytes'])} "
        f"in {figures['page_locks']} blocks ({figures['page_locks_when_repeated']} made in repeated steps)",
    ]
    if overlap is not None:
        lines.append(f"  overlap: during {overlap:.0%} of the copies' time the compute stream did not wait")
    if figures["steps"]:
        lines.append(
            f"  plan: {format_size(figures['planned_out_bytes'])} leave in each step, which then needs "
            f"{format_size(figures['planned_peak_bytes'])}"
        )
    if figures["refused"]:
        lines.append(f"  {figures['refused']} tensors stayed on the device because there was no page-locked memory for them")
    return "\n".join(lines)


def report_of(hooks: Hooks | None) -> Report:
    if hooks is None:
        raise RuntimeError("vdnn.torch was not enabled yet: there is nothing to report")
    return Report(hooks.tier, {device: stash.statistics() for device, stash in hooks.stashes().items()})
