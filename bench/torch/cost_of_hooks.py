"""The cost of a saved tensor on the host: microseconds of CPU time over no hooks, of saving and reading together.

    VDNN_STASH_LIBRARY=build/release/libvdnn_stash.so PYTHONPATH=python python3 bench/torch/cost_of_hooks.py

The ways take turns, and the least of many rounds counts, so that a busy machine disturbs all of them alike. `kept`: tensors below
min_size. `stashed`: each of them leaves and comes back; copies of a few bytes are in it.
"""

import argparse
import contextlib
import time

import torch

import vdnn.torch

OPERATIONS = 1000
SIZE = 8


def seconds_of_step(around_forward):
    x = torch.ones(SIZE, requires_grad=True)
    with around_forward():
        start = time.thread_time()
        y = x
        for _ in range(OPERATIONS):
            y = y.sin()  # saves its input
        seconds = time.thread_time() - start
    total = y.sum()
    start = time.thread_time()
    total.backward()
    return seconds + time.thread_time() - start


def hooks(tier, min_size):
    return lambda: vdnn.torch.offload(budget=0, min_size=min_size, tier=tier)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=40)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    ways = {"none": contextlib.nullcontext}
    for tier in ("native", "python"):
        ways |= {f"{tier}, kept": hooks(tier, "1MiB"), f"{tier}, stashed": hooks(tier, 1)}
    least = dict.fromkeys(ways, float("inf"))
    for _ in range(arguments.rounds):
        for way, around_forward in ways.items():
            least[way] = min(least[way], seconds_of_step(around_forward))
    for way, seconds in least.items():
        print(f"{way:16s} {(seconds - least['none']) / OPERATIONS * 1e6:6.2f} us a saved tensor over none")


if __name__ == "__main__":
    main()
