"""Which tier serves a program."""

from __future__ import annotations

from typing import Protocol

from ._library import NativeStash
from ._python_hooks import PythonHooks
from ._settings import Settings


class Hooks(Protocol):
    """Hooks for saved tensors with the same settings."""

    tier: str

    def start(self) -> None:
        """Saved tensors go through the hooks from now on."""

    def stop(self) -> None:
        """Ends the last start()."""

    def stashes(self) -> dict[str, NativeStash]:
        """By name of the device."""


def make_hooks(settings: Settings) -> Hooks:
    return PythonHooks(settings)
