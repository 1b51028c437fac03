"""Prints the contents of a file as the public implementation of safetensors reads them.

  safetensors_check.py FILE [COPY]

Prints one line `metadata KEY VALUE` per entry and one line `tensor NAME DTYPE SHAPE SHA256` per tensor, both sorted.
Texts are JSON; the hash is that of the little-endian bytes in C order. With COPY, also writes the contents to that file.
The exit status is 1, with a message, if FILE cannot be read.
"""

import hashlib
import json
import sys

from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file


def main():
    if len(sys.argv) not in (2, 3):
        print(__doc__, file=sys.stderr)
        return 2
    try:
        with safe_open(sys.argv[1], framework="numpy") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}
    except (OSError, SafetensorError) as error:
        print(f"{sys.argv[1]}: {error}", file=sys.stderr)
        return 1
    for key, value in sorted(metadata.items()):
        print("metadata", json.dumps(key), json.dumps(value))
    for name, array in sorted(tensors.items()):
        little_endian = array.astype(array.dtype.newbyteorder("<"), copy=False)
        digest = hashlib.sha256(little_endian.tobytes(order="C")).hexdigest()
        print("tensor", json.dumps(name), array.dtype, json.dumps(array.shape).replace(" ", ""), digest)
    if len(sys.argv) == 3:
        save_file(tensors, sys.argv[2], metadata)
    return 0


if __name__ == "__main__":
    sys.exit(main())
