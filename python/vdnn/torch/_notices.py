"""Notices of a stash to its user: each once, in one line of log."""

from __future__ import annotations

import logging


def log_notice(text: str) -> None:
    logging.getLogger("vdnn.torch").warning("%s", text)
