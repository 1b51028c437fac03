"""Threads that save and read tensors at the same time, with and without Python's lock, neither wait for each other forever nor
disturb each other's gradients."""

import os
import subprocess
import sys
import threading
import unittest

import torch

import vdnn.torch

STEPS = 300
SECONDS = 300  # a hang takes longer


class Doubled(torch.autograd.Function):
    """Saves its input, and another tensor without a history, while this thread holds Python's lock."""

    @staticmethod
    def forward(ctx, x):
        mask = torch.ones_like(x)
        ctx.save_for_backward(x, mask)
        return 2 * x

    @staticmethod
    def backward(ctx, gradient):
        x, mask = ctx.saved_tensors
        return 2 * gradient * mask + 0 * x


def gradient_of_operations():
    """Operations save tensors without Python's lock. A storage with an object of Python is asked for its references, for which
    PyTorch takes Python's lock."""
    x = torch.ones(64, requires_grad=True)
    y = x
    for _ in range(8):
        mask = torch.full((64,), True)
        mask.untyped_storage()
        y = torch.where(mask, (y * 1).sin(), y)
    return torch.autograd.grad(y.sum(), x)[0]


def gradient_of_functions():
    x = torch.ones(64, requires_grad=True)
    y = x
    for _ in range(8):
        y = Doubled.apply(y.sin())
    return torch.autograd.grad(y.sum(), x)[0]


def abandoned_graph():
    x = torch.ones(64, requires_grad=True)
    Doubled.apply((x * 1).sin())


def train_in_threads(tier):
    """Runs in a process of its own, which the test can end."""
    torch.set_num_threads(1)
    expected = {work: work() for work in (gradient_of_operations, gradient_of_functions)}
    wrong = []

    def repeat(work):
        if tier == "python":  # serves the threads that have enabled it
            with vdnn.torch.offload(budget=0, min_size=1, tier=tier):
                steps(work)
        else:
            steps(work)

    def steps(work):
        for _ in range(STEPS):
            found = work()
            if work in expected and not torch.equal(found, expected[work]):
                wrong.append(work.__name__)

    if tier == "native":
        vdnn.torch.enable(budget=0, min_size=1, tier=tier)
    threads = [threading.Thread(target=repeat, args=(work,))
               for work in (gradient_of_operations, gradient_of_operations, gradient_of_functions, abandoned_graph)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    moved = sum(figures["in_bytes"] for figures in vdnn.torch.report(quiet=True).devices.values())
    if wrong or not moved:
        sys.exit(f"wrong gradients: {wrong}; {moved} bytes came back")


class Threads(unittest.TestCase):
    def check(self, tier):
        done = subprocess.run([sys.executable, "-W", "ignore", __file__, tier], env=os.environ, capture_output=True, text=True,
                              timeout=SECONDS)
        self.assertEqual(done.returncode, 0, done.stderr[-3000:])

    def test_native(self):
        self.check("native")

    def test_python(self):
        self.check("python")


if __name__ == "__main__":
    if len(sys.argv) > 1 and sys.argv[1] in ("native", "python"):
        train_in_threads(sys.argv[1])
    else:
        unittest.main()
