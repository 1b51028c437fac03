"""Verifies that a file is complete and made from the expected sources before it is opened as a library.

The dynamic linker would map a truncated file, and the process would crash at the first missing page. So a binary ends in a
seal, which the linker ignores. The seal consists of a mark, the identity of the binary's sources, and a digest of all bytes
before it.
"""

from __future__ import annotations

import hashlib
import pathlib

_MARK = b"vdnn-sealed-file"
_DIGEST_BYTES = hashlib.sha256().digest_size


def seal(content: bytes, identity: bytes) -> bytes:
    """Appends the seal to `content`. `identity`: a SHA-256."""
    return content + _MARK + identity + hashlib.sha256(content).digest()


def is_sealed(path: pathlib.Path, identity: bytes) -> bool:
    """Whether the file exists, is complete and has this identity. Raises OSError if reading is not permitted."""
    try:
        found = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return False
    content = found[: -(len(_MARK) + 2 * _DIGEST_BYTES)]
    return found == seal(content, identity)
