"""What one call of enable() or offload() has asked for, checked before anything is touched."""

from __future__ import annotations

import dataclasses

import torch

from . import _pool, _sizes

TIERS = ("auto", "python", "native")


@dataclasses.dataclass(frozen=True)
class Settings:
    """Equal settings share their stashes, and with them what has been learned."""

    budget_bytes: int
    host_bytes: int
    min_bytes: int  # smaller tensors stay
    device_type: str  # "cuda", or "cpu" where there is no GPU
    tier: str
    ahead_bytes: int = 0
    flight_bytes: int = 0
    delay_seed: int = 0

    def stash_options(self) -> dict[str, int]:
        names = ("budget_bytes", "host_bytes", "ahead_bytes", "flight_bytes", "delay_seed")
        return {name: getattr(self, name) for name in names}


def make_settings(
    budget: int | str | None, host_budget: int | str | None, tier: str, min_size: int | str, **of_tests: int
) -> Settings:
    if tier not in TIERS:
        raise ValueError(f"tier is {tier!r}: there are {', '.join(TIERS)}")
    host_bytes = 0
    if host_budget is not None:
        host_bytes = _sizes.parse_size(host_budget, "host_budget")
        if host_bytes == 0:
            raise ValueError("host_budget is 0: nothing could leave; leave it out for half of the machine's memory")
    min_bytes = _sizes.parse_size(min_size, "min_size")
    if min_bytes == 0:
        raise ValueError("min_size is 0: the smallest tensor that may leave has 1 byte")
    if budget is None:
        budget = _pool.budget_of_tensors()
        if budget is None:
            raise TypeError("budget is missing: it may be left out only after vdnn.torch.use_pool(budget=...)")
    device_type = "cuda" if torch.cuda.is_available() else "cpu"
    return Settings(_sizes.parse_size(budget, "budget"), host_bytes, min_bytes, device_type, tier, **of_tests)
