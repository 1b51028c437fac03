"""Gradients, weights and buffers are equal to the bit over four steps with and without vdnn.torch, whatever moves."""

import contextlib
import unittest

import networks
import torch

import vdnn.torch

# Everything leaves; some of it, by a plan; nothing.
BUDGETS = (0, "6MiB", "1GiB")


class Equality(unittest.TestCase):
    def check(self, name, **options):
        expected = networks.train(name, contextlib.nullcontext, **options)
        for tier in ("python", "native"):
            for budget in BUDGETS:
                with self.subTest(name=name, tier=tier, budget=budget, **options):
                    left = self.tensors_that_left(tier, budget)
                    found = networks.train(name, lambda: self.offload(tier, budget), **options)
                    self.assertEqual(found, expected)
                    if budget == 0:
                        self.assertGreater(self.tensors_that_left(tier, budget), left)

    @staticmethod
    def offload(tier, budget):
        return vdnn.torch.offload(budget=budget, min_size="4KiB", tier=tier)

    def tensors_that_left(self, tier, budget):
        with self.offload(tier, budget):
            return sum(figures["left"] for figures in vdnn.torch.report(quiet=True).devices.values())

    def test_networks(self):
        for name in networks.NAMES:
            self.check(name)

    def test_autocast(self):
        self.check("unet", autocast=True)

    def test_channels_last(self):
        self.check("unet", memory_format=torch.channels_last)
        self.check("unet", memory_format=torch.channels_last, autocast=True)

    def test_enabled_for_the_whole_program(self):
        expected = networks.train("unet", contextlib.nullcontext)
        for tier in ("python", "native"):
            vdnn.torch.enable(budget=0, min_size="4KiB", tier=tier)
            try:
                self.assertEqual(networks.train("unet", contextlib.nullcontext), expected)
            finally:
                vdnn.torch.disable()


if __name__ == "__main__":
    unittest.main()
