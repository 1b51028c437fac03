"""Runs train.py on the fake GPU for tests, with the libraries that a test gets on its command line and the options that it
passes to run()."""

import argparse
import json
import os
import subprocess
import sys
import tempfile

import fake_gpu

SKIPPED = 77

options = argparse.Namespace()


def add_options(parser):
    parser.add_argument("--stand-in", action="append", required=True)
    parser.add_argument("--pool", required=True, help="libvdnn_torch.so over the stand-in")
    parser.add_argument("--stash", required=True, help="libvdnn_stash.so over the stand-in")
    parser.add_argument("--folder", required=True, help="for the library of operators")
    parser.add_argument("--cuda-headers", required=True)


def parse_options(parser):
    """Ends the process if there is no PyTorch for CUDA: as skipped, or as failed if VDNN_REQUIRE_TORCH is 1."""
    parser.parse_args(namespace=options)
    try:
        options.operators = fake_gpu.build_operators(options.folder, options.stand_in[0], options.cuda_headers)
    except fake_gpu.Unavailable as reason:
        required = os.environ.get("VDNN_REQUIRE_TORCH") == "1"
        print(f"{'failed' if required else 'skipped'}: {reason}")
        sys.exit(1 if required else SKIPPED)


def environment_of_children(more=None):
    return {
        **os.environ,
        "OMP_NUM_THREADS": "1",  # a process with more threads cannot be forked
        "PYTHONDONTWRITEBYTECODE": "1",
        "VDNN_STAND_IN_MEMORY": "1GiB",
        "VDNN_TORCH_LIBRARY": options.pool,
        "VDNN_STASH_LIBRARY": options.stash,
        **(more or {}),
    }


def run(network, *arguments, seeds, python_path=fake_gpu.ROOT / "python", environment=None):
    """Returns the line that train.py prints for each seed."""
    with tempfile.TemporaryDirectory() as folder:
        command = [
            *(sys.executable, "-W", "ignore", str(fake_gpu.HERE / "train.py"), network, folder),
            *(f"--stand-in={library}" for library in options.stand_in),
            f"--operators={options.operators}",
            *(f"--python-path={path}" for path in (fake_gpu.ROOT / "tests/torch", python_path)),
            f"--seeds={seeds}",
            *arguments,
        ]
        done = subprocess.run(command, env=environment_of_children(environment), capture_output=True, text=True)
        rows = [json.loads(line) for line in done.stdout.splitlines()]
        if done.returncode != 0 or len(rows) != seeds:
            raise AssertionError(f"{network} {arguments}: {done.stdout}{done.stderr}")
        for row in rows:
            row["text"] = done.stderr[-3000:]
        return rows
