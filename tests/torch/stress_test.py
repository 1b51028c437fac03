"""Steps with varying shapes, dropped layers, checkpointed parts, retain_graph, create_graph, abandoned forward passes and
exceptions. Copies are delayed at random, and memory that PyTorch frees is poisoned. Gradients, weights and buffers must be those
of PyTorch alone, bit for bit. For each seed, tensors must leave and come back, and no handle may remain alive.
`stress_test.py SEEDS` runs that many seeds; a failure names its seed."""

import collections
import contextlib
import ctypes
import gc
import random
import sys
import unittest

import torch
from torch.utils import checkpoint

import vdnn.torch
from own_hooks import serving
from vdnn.torch import _native_hooks

SEEDS = 64
STEPS = 12
KINDS = ("abandoned", "retain_graph", "create_graph", "exception")


class Irregular(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Conv2d(3, 16, 3, 1, 1)
        self.blocks = torch.nn.ModuleList(
            torch.nn.Sequential(torch.nn.Conv2d(16, 16, 3, 1, 1), torch.nn.BatchNorm2d(16), torch.nn.ReLU(True))
            for _ in range(6)
        )
        self.last = torch.nn.Linear(16, 10)

    def forward(self, x, draw):
        x = self.first(x)
        for block in self.blocks:
            kind = draw.random()
            if kind < 0.2:
                continue
            y = checkpoint.checkpoint(block, x, use_reentrant=False) if kind < 0.4 else block(x)
            if kind < 0.7:
                x = x + y
            elif kind < 0.8 and y.shape[-1] > 8:
                x = y[:, :, 1::2, 1::2]
            else:
                x = y.contiguous(memory_format=torch.channels_last)
            if kind > 0.97:
                raise KeyError("of the program")
        return self.last(x.mean((2, 3)))


def one_step(network, draw, ran):
    """Runs one random step, and counts its kinds in `ran`. Returns its results. A graph without a backward pass lives as long as
    its result."""
    kind = draw.random()
    shapes = [(draw.choice([2, 2, 2, 3]), 3, draw.choice([16, 16, 24]), 16) for _ in range(3 if kind < 0.3 else 1)]
    batches = [torch.randn(*shape) for shape in shapes]
    abandoned = network(batches[0], draw) if draw.random() < 0.2 else None
    ran["abandoned"] += abandoned is not None
    losses = [network(batch, draw).pow(2).sum() for batch in batches]
    if kind < 0.15:
        ran["retain_graph"] += 1
        losses[0].backward(retain_graph=True)
    if kind > 0.9:
        ran["create_graph"] += 1
        gradients = torch.autograd.grad(losses[0], list(network.parameters()), create_graph=True, allow_unused=True)
        (sum(gradient.pow(2).sum() for gradient in gradients if gradient is not None) * 1e-3).backward()
    elif kind < 0.2:
        sum(losses).backward()
    else:
        for loss in losses:
            loss.backward()
    return abandoned, losses


def state_of(network):
    """The bits of gradients, weights and buffers."""
    tensors = (*(p.grad for p in network.parameters()), *network.parameters(), *network.buffers())
    return [None if tensor is None else tensor.detach().numpy().tobytes() for tensor in tensors]


@contextlib.contextmanager
def exceptions_counted(ran):
    try:
        yield
    except KeyError:
        ran["exception"] += 1


def states_of_steps(seed, around_step, ran):
    torch.manual_seed(seed)
    network, draw, found = Irregular(), random.Random(seed), []
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01)
    kept = None
    for _ in range(STEPS):
        optimizer.zero_grad()
        with exceptions_counted(ran), around_step():
            kept = one_step(network, draw, ran)  # the previous results live until then, like those of a program that logs them
        found.append(state_of(network))
        optimizer.step()
    del kept
    return found


def hooks_of(tier, seed):
    """Each seed has its own stash. Odd seeds have a budget, so that a plan decides."""
    settings = vdnn.torch.make_settings(
        budget=(seed % 2) * 200_000, tier=tier, min_size=4096, delay_seed=seed + 1, window=65536
    )
    return vdnn.torch.make_hooks(settings)


class Stress(unittest.TestCase):
    seeds = SEEDS

    def setUp(self):
        torch.set_num_threads(1)
        _native_hooks.count_cpu_memory(poison=True)

    def check(self, tier):
        ran = collections.Counter()
        for seed in range(self.seeds):
            expected = states_of_steps(seed, contextlib.nullcontext, collections.Counter())
            hooks = hooks_of(tier, seed)
            found = states_of_steps(seed, lambda: serving(hooks), ran)
            different = [step for step in range(STEPS) if found[step] != expected[step]]
            reproduce = f"reproduce with tier {tier}, seed {seed}"
            self.assertEqual(different, [], f"steps; {reproduce}")
            gc.collect()
            figures = hooks.stashes()["cpu"].statistics()
            self.assertEqual(figures["live_handles"], 0, reproduce)
            self.assertGreater(figures["left"], 0, reproduce)
            self.assertGreater(figures["in_bytes"], 0, reproduce)
        if self.seeds >= SEEDS:
            self.assertEqual([kind for kind in KINDS if not ran[kind]], [], "no step was of these kinds")

    def test_freed_memory_is_poisoned(self):
        tensor = torch.zeros(256, dtype=torch.uint8)
        address = tensor.data_ptr()
        del tensor
        self.assertEqual(ctypes.string_at(address, 256), b"\xff" * 256)

    def test_python(self):
        self.check("python")

    def test_native(self):
        self.check("native")


if __name__ == "__main__":
    if len(sys.argv) > 1 and sys.argv[1].isdigit():
        Stress.seeds = int(sys.argv.pop(1))
    unittest.main()
