"""Chooses the tier for a program."""

from __future__ import annotations

import logging
from typing import Protocol

from . import _pool
from ._library import NativeStash
from ._native_hooks import DoesNotFit, NativeHooks
from ._python_hooks import PythonHooks
from ._settings import Settings


class Hooks(Protocol):
    """Hooks for saved tensors with the same settings."""

    tier: str

    def start(self) -> None:
        """From now on, autograd passes saved tensors through the hooks."""

    def stop(self) -> None:
        """Ends the last start()."""

    def leave_to_parent(self) -> None:
        """Keeps all tensors in place from now on; called in a child of fork()."""

    def stashes(self) -> dict[str, NativeStash]:
        """The stashes by name of the device."""


_reasons_told: set[str] = set()


def make_hooks(settings: Settings) -> Hooks:
    """Makes the hooks of the tier. Raises RuntimeError if tier "native" was requested and is not available."""
    if settings.device_type == "cuda":
        _pool.settle()
    if settings.tier == "python":
        return PythonHooks(settings)
    try:
        return NativeHooks(settings)
    except DoesNotFit as reason:
        if settings.tier == "native":
            raise RuntimeError(f"vdnn.torch: tier native is not available: {reason}") from None
        if str(reason) not in _reasons_told:
            _reasons_told.add(str(reason))
            logging.getLogger("vdnn.torch").warning("tier native is not available, tier python is used: %s", reason)
        return PythonHooks(settings)
