"""The arguments of one call of enable() or offload(), checked before anything changes."""

from __future__ import annotations

import dataclasses
import os

import torch

from . import _library, _pool
from ._sizes import parse_size

TIERS = ("auto", "python", "native")


@dataclasses.dataclass(frozen=True)
class Settings:
    """Settings of hooks. Hooks with equal settings share stashes and learned steps."""

    budget_bytes: int
    host_bytes: int  # for the stash of one device; 0: a share of the machine's default
    min_bytes: int  # smaller tensors stay on the device
    device_type: str  # "cuda", or "cpu" if there is no GPU
    tier: str
    window_bytes: int = 0  # 0: the two largest tensors
    delay_seed: int = 0  # for tests: random delays before copies

    def __post_init__(self) -> None:
        if self.tier not in TIERS:
            raise ValueError(f"tier is {self.tier!r}: it must be one of {', '.join(TIERS)}")
        if self.min_bytes == 0:
            raise ValueError("min_size is 0: the smallest tensor that may leave has 1 byte")

    def stash_options(self) -> dict[str, int]:
        return {
            "budget_bytes": self.budget_bytes,
            "host_bytes": self.host_bytes or _share_of_host_memory(),
            "ahead_bytes": self.window_bytes,
            "flight_bytes": self.window_bytes,
            "release_at_put": int(self.device_type == "cuda" and _pool.library() is not None),
            "timed": int(self.device_type == "cuda"),  # for the overlap in report(); on the host, copies are always timed
            "delay_seed": self.delay_seed,
        }


def make_settings(
    budget: int | str | None = None,
    host_budget: int | str | None = None,
    tier: str = "auto",
    min_size: int | str = "1MiB",
    window: int | str | None = None,
    delay_seed: int = 0,
) -> Settings:
    if budget is None:
        budget = _pool.budget_of_tensors()
        if budget is None:
            raise TypeError("budget is missing: it may be omitted only after vdnn.torch.use_pool(budget=...)")
    return Settings(
        budget_bytes=parse_size(budget, "budget"),
        host_bytes=_optional_size(host_budget, "host_budget"),
        min_bytes=parse_size(min_size, "min_size"),
        device_type="cuda" if torch.cuda.is_available() else "cpu",
        tier=tier,
        window_bytes=_optional_size(window, "window"),
        delay_seed=delay_seed,
    )


def _share_of_host_memory() -> int:
    """The host budget of one device's stash. All stashes of the machine share one limit, since page-locked memory is not
    swapped.

    Each rank that torchrun starts is assumed to use one GPU, even if the rank sees all GPUs. A single process may use all GPUs.
    """
    ranks = os.environ.get("LOCAL_WORLD_SIZE", "")
    stashes = max(int(ranks) if ranks.isdecimal() else 1, torch.cuda.device_count(), 1)
    return _library.default_host_bytes() // stashes


def _optional_size(value: int | str | None, name: str) -> int:
    """The size of an option; 0 for None, which is the stash's default."""
    if value is None:
        return 0
    size = parse_size(value, name)
    if size == 0:
        raise ValueError(f"{name} is 0, so that no tensor could leave; omit it for the default")
    return size
