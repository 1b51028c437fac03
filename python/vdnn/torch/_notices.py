"""Notices of a stash to its user, each logged once in one line."""

from __future__ import annotations

import logging


def log_notice(text: str) -> None:
    logging.getLogger("vdnn.torch").warning("%s", text)
