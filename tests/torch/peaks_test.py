"""From the third step on, the measured peak of all tensors agrees with the plan's peak within 2 %, in sufficient budgets. The
plan keeps the budget, so the measured peak exceeds the budget by at most 2 %."""

import os
import subprocess
import sys
import unittest
from unittest import mock

import networks
import torch
from steady_test import Run

import vdnn.torch
from vdnn.torch import _pool
from vdnn.torch._recent_peak import MemoryFigures, RecentPeak

TIERS = ("native", "python")
TOLERANCE = 1.02
MIN_SIZE = 16 << 10
# Budgets as parts of the way from the smallest sufficient budget to the peak without hooks.
PARTS = (0.9, 0.7, 0.5)
FIRST_STEADY_STEP = 2  # the first step makes gradients and the optimizer's state, so only the second one shows all memory


def resnet18():
    torch.manual_seed(0)
    return networks.ResNet18(), torch.randn(32, 3, 64, 64), torch.randint(100, (32,))


def unet():
    torch.manual_seed(0)
    return networks.UNet(16, 4), torch.randn(4, 3, 96, 96), torch.randint(2, (4, 96, 96))


def unet3d():
    torch.manual_seed(0)
    return networks.UNet(4, 3, dimensions=3), torch.randn(2, 3, 32, 32, 32), torch.randint(2, (2, 32, 32, 32))


# Plugs in an allocator that is neither vdnn's nor PyTorch's. No memory is allocated, so this needs no GPU.
FOREIGN_ALLOCATOR = """
from unittest import mock
import torch
from vdnn.torch import _pool
from vdnn.torch._recent_peak import RecentPeak
torch.cuda.memory.change_current_allocator(torch.cuda.memory.CUDAPluggableAllocator("libc.so.6", "malloc", "free"))
with mock.patch("torch.cuda.memory.is_initialized", return_value=True):
    try:
        torch.cuda.memory_stats_as_nested_dict(0)
    except RuntimeError:
        print("refused")
    print(RecentPeak(lambda: _pool.memory_figures(0)).take())
"""


class Peaks(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        torch.set_num_threads(1)
        vdnn.torch.measure_memory()

    def check(self, make):
        alone = max(Run(make=make).peaks[FIRST_STEADY_STEP:])
        for tier in TIERS:
            with self.assertLogs("vdnn.torch", "WARNING"):  # the warning has the memory that a step needs
                smallest = Run(tier, make, MIN_SIZE, budget=1).figures[-1]["planned_peak_bytes"]
            self.assertLess(smallest, 0.95 * alone)
            for part in PARTS:
                budget = int(smallest + part * (alone - smallest))
                with self.subTest(tier=tier, part=part):
                    run = Run(tier, make, MIN_SIZE, budget=budget)
                    peak, planned = max(run.peaks[FIRST_STEADY_STEP:]), run.figures[-1]["planned_peak_bytes"]
                    self.assertLess(budget, alone)
                    self.assertGreater(run.figures[-1]["planned_out_bytes"], 0)
                    self.assertLessEqual(planned, budget)
                    self.assertLessEqual(peak, TOLERANCE * planned)
                    self.assertLessEqual(planned, TOLERANCE * peak)

    def test_resnet18(self):
        self.check(resnet18)

    def test_unet(self):
        self.check(unet)

    def test_unet3d(self):
        self.check(unet3d)


class PeakOfGpu(unittest.TestCase):
    """A stash on a GPU gets at least the peak since the last event. fake_gpu_test.py tests its use in training."""

    def setUp(self):
        self.figures = MemoryFigures(current=100, peak=300, allocated=1000)
        self.peak = RecentPeak(lambda: self.figures)

    def allocate(self, size):
        current = self.figures.current + size
        self.figures = MemoryFigures(current, max(self.figures.peak, current), self.figures.allocated + size)

    def free(self, size):
        self.figures = self.figures._replace(current=self.figures.current - size)

    def test_memory_between_events_counts(self):
        self.allocate(40)
        self.free(40)
        self.assertEqual(self.peak.take()[0], 140)
        self.assertEqual(self.peak.take()[0], 100)

    def test_no_more_than_the_allocators_peak(self):
        for _ in range(10):
            self.allocate(40)
            self.free(40)
        self.assertEqual(self.peak.take()[0], 300)

    def test_restart(self):
        self.allocate(40)
        self.free(60)
        self.peak.restart()
        self.assertEqual(self.peak.take()[0], 80)

    def test_program_resets_the_peak(self):
        self.allocate(40)
        self.free(40)
        self.figures = self.figures._replace(peak=100)
        self.assertEqual(self.peak.take()[0], 140)

    def test_allocator_that_does_not_count_what_was_allocated(self):
        self.figures = self.figures._replace(current=140)
        self.assertEqual(self.peak.take()[0], 140)
        self.figures = self.figures._replace(current=60)
        self.assertEqual(self.peak.take()[0], 140)
        self.assertEqual(self.peak.take()[0], 60)

    def test_program_resets_what_was_allocated(self):
        self.allocate(40)
        self.figures = self.figures._replace(allocated=0)
        self.assertEqual(self.peak.take()[0], 140)

    def test_plugged_in_allocator_without_figures(self):
        """PyTorch itself refuses the figures. In a process of its own, since an allocator stays until its process ends."""
        if not torch.backends.cuda.is_built() and os.environ.get("VDNN_REQUIRE_TORCH") != "1":
            self.skipTest("this PyTorch has no allocators of GPUs")
        done = subprocess.run([sys.executable, "-W", "ignore", "-c", FOREIGN_ALLOCATOR], capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stdout), (0, "refused\n(0, 0)\n"), done.stderr)

    def test_other_errors_are_raised(self):
        with mock.patch("torch.cuda.memory_stats_as_nested_dict", side_effect=RuntimeError("unspecified launch failure")):
            with self.assertRaisesRegex(RuntimeError, "launch failure"):
                _pool.memory_figures(0)


if __name__ == "__main__":
    unittest.main()
