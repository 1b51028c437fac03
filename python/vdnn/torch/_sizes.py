"""Parses sizes as the vdnn command does: "10GiB", "512MiB", "3.5GB", or a number of bytes."""

from __future__ import annotations

import re

_UNITS = {"": 1, "B": 1}
for _power, _letter in enumerate("KMGT", start=1):
    _UNITS[f"{_letter}iB"] = 1 << (10 * _power)
    _UNITS[f"{_letter}B"] = 1000**_power
_LARGEST = (1 << 63) - 1


def parse_size(value: int | str, name: str) -> int:
    """The bytes of `value`. Raises a TypeError or ValueError that names the option `name`."""
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        raise TypeError(f"{name} is {value!r}: a size is a number of bytes or text like '10GiB'")
    if isinstance(value, int):
        size = value
    else:
        found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", value)
        if found is None or found[2] not in _UNITS:
            raise ValueError(f"{name} is {value!r}: a size is a number of bytes or text like '10GiB', '512MiB' or '3.5GB'")
        size = int(float(found[1]) * _UNITS[found[2]]) if "." in found[1] else int(found[1]) * _UNITS[found[2]]
    if not 0 <= size <= _LARGEST:
        raise ValueError(f"{name} is {value!r}: a size is from 0 to {_LARGEST} bytes")
    return size


def format_size(size: int) -> str:
    for unit in ("GiB", "MiB", "KiB"):
        if size >= _UNITS[unit]:
            return f"{size / _UNITS[unit]:.1f} {unit}"
    return f"{size} B"
