"""The host's cost of a saved tensor: microseconds of CPU time for saving and reading, compared with no hooks.

    VDNN_STASH_LIBRARY=build/release/libvdnn_stash.so PYTHONPATH=python python3 bench/torch/cost_of_hooks.py

The contenders take turns. Figures are differences within a round, so that a busy machine disturbs both sides alike. The output
shows the median of many rounds, and the lower quartile in parentheses. `small`: tensors below min_size, which the stash never
sees. `kept`: tensors that the stash's plan keeps. `stashed`: each tensor leaves and comes back. The training thread copies small
tensors, threads of the stash copy larger ones. `thread`: CPU time of the training thread; `process`: CPU time of all threads,
including those that copy.
"""

import argparse
import contextlib
import statistics
import time

import torch

import vdnn.torch

# Bytes of a tensor -> number of tensors saved in a step.
SIZES = {32: 1000, 64 << 10: 500, 1 << 20: 100}
FLOAT_BYTES = 4

CLOCKS = {"thread": time.thread_time, "process": time.process_time}


def seconds_of(work):
    """Seconds by clock, and the result of work()."""
    start = {name: clock() for name, clock in CLOCKS.items()}
    result = work()
    return {name: clock() - start[name] for name, clock in CLOCKS.items()}, result


def forward(x, operations, around_forward):
    with around_forward():
        for _ in range(operations):
            x = x.sin()  # saves its input
    return x


def seconds_of_step(around_forward, size, operations):
    x = torch.ones(size // FLOAT_BYTES, requires_grad=True)
    saving, y = seconds_of(lambda: forward(x, operations, around_forward))
    total = y.sum()
    reading, _ = seconds_of(total.backward)
    return {name: saving[name] + reading[name] for name in CLOCKS}


def hooks(tier, budget, min_size):
    return lambda: vdnn.torch.offload(budget=budget, min_size=min_size, tier=tier)


def measure(size, operations, rounds):
    ways = {"none": contextlib.nullcontext}
    for tier in ("native", "python"):
        ways |= {
            f"{tier}, small": hooks(tier, 0, "1GiB"),
            f"{tier}, kept": hooks(tier, "1TiB", 1),
            f"{tier}, stashed": hooks(tier, 0, 1),
        }
    seconds = {way: [] for way in ways}
    for _ in range(rounds):
        for way, around_forward in ways.items():
            seconds[way].append(seconds_of_step(around_forward, size, operations))
    for way in list(ways)[1:]:
        texts = []
        for clock in CLOCKS:
            over = [(own[clock] - none[clock]) / operations * 1e6 for own, none in zip(seconds[way], seconds["none"])]
            quarter, median, _ = statistics.quantiles(over)
            texts.append(f"{clock} {median:7.2f} ({quarter:7.2f})")
        print(f"{size:8d} bytes, {way:16s} {', '.join(texts)} us per tensor more than without hooks", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES), help="bytes of a tensor")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    for size in arguments.sizes:
        measure(size, SIZES.get(size, 100), arguments.rounds)


if __name__ == "__main__":
    main()
