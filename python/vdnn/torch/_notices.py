"""What a stash has to tell its user, each thing once, in one line of log."""

from __future__ import annotations

import logging


def log_notice(text: str) -> None:
    logging.getLogger("vdnn.torch").warning("%s", text)
