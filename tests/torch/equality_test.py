"""Over four steps, vdnn.torch changes no bit of gradients, weights and buffers, whatever it moves.

Plain networks run with every budget. Networks with autocast or other memory layouts run with one budget, and with every budget
if VDNN_LONG_RUN is set.
"""

import contextlib
import os
import unittest

import networks
import torch

import vdnn.torch

# With the first budget all tensors leave, with the second some leave by a plan, and with the third none leaves.
BUDGETS = (0, "6MiB", "1GiB")
BUDGETS_OF_VARIANTS = BUDGETS if os.environ.get("VDNN_LONG_RUN") else BUDGETS[:1]


class Equality(unittest.TestCase):
    def check(self, name, budgets=BUDGETS_OF_VARIANTS, **options):
        try:
            expected = networks.train(name, contextlib.nullcontext, **options)
        except RuntimeError as error:
            # oneDNN has a bf16 LSTM only for processors with AVX-512; other processors cannot train it without
            # vdnn.torch either.
            if "could not create a primitive" not in str(error) or "avx512" in torch.backends.cpu.get_cpu_capability().lower():
                raise
            with self.subTest(name=name, **options):
                self.skipTest(f"this processor has no {name} {options}: {str(error).splitlines()[0]}")
            return
        for tier in ("python", "native"):
            for budget in budgets:
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
            self.check(name, BUDGETS)

    def test_autocast(self):
        for name in networks.NAMES:
            self.check(name, autocast=True)

    def test_channels_last(self):
        for name in ("resnet18", "checkpointed_resnet18", "unet"):
            self.check(name, memory_format=torch.channels_last)
            self.check(name, memory_format=torch.channels_last, autocast=True)

    def test_channels_last_3d(self):
        self.check("unet3d", memory_format=torch.channels_last_3d)
        self.check("unet3d", memory_format=torch.channels_last_3d, autocast=True)

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
