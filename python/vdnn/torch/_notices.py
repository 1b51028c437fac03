"""Logs notices of a stash for its user, each once, on one line."""

from __future__ import annotations

import logging


def log_notice(text: str) -> None:
    logging.getLogger("vdnn.torch").warning("%s", text)
