"""Over four steps, vdnn.torch changes no bit of gradients, weights and buffers, whatever it moves.

Plain networks run with every budget. Networks with autocast or other memory layouts run with budget 0, and with every budget if
VDNN_LONG_RUN is set.
"""

import contextlib
import os
import unittest

import networks
import torch
from own_hooks import OwnHooks

import vdnn.torch

TIERS = ("python", "native")
MIN_SIZE = "4KiB"
# The source of each tensor is released at its save, so that its reader gets a copy from the host.
EVERYTHING_LEAVES = {"budget": 0, "window": 1}
NOTHING_LEAVES = {"budget": "1GiB"}
# Its graph saves two versions of one storage and keeps the first one. So moving the second one frees no memory, and a plan need
# not move anything.
PLAN_MAY_MOVE_NOTHING = "rewritten"


class Equality(unittest.TestCase):
    def check(self, name, all_budgets=bool(os.environ.get("VDNN_LONG_RUN")), **how):
        try:
            expected = networks.train(name, contextlib.nullcontext, **how)
        except RuntimeError as error:
            # oneDNN has a bf16 LSTM only for processors with AVX-512; other processors cannot train it without
            # vdnn.torch either.
            if "could not create a primitive" not in str(error) or "avx512" in torch.backends.cpu.get_cpu_capability().lower():
                raise
            with self.subTest(name=name, **how):
                self.skipTest(f"this processor has no {name} {how}: {str(error).splitlines()[0]}")
            return
        for tier in TIERS:
            with self.subTest(name=name, tier=tier, **how):
                self.check_budgets(name, tier, how, expected, all_budgets)

    def check_budgets(self, name, tier, how, expected, all_budgets):
        def run(**options):
            own = OwnHooks(tier=tier, min_size=MIN_SIZE, **options)
            states = networks.train(name, own.serving, **how)
            different = [step for step, (found, wanted) in enumerate(zip(states, expected)) if found != wanted]
            self.assertEqual(different, [], f"steps that differ with {options}")
            return own.hooks.stashes()["cpu"].statistics()

        everything = run(**EVERYTHING_LEAVES)
        self.assertGreater(everything["out_bytes"], 0)
        self.assertGreater(everything["in_bytes"], 0)
        if not all_budgets:
            return
        self.assertGreater(run(budget=0)["out_bytes"], 0)
        nothing = run(**NOTHING_LEAVES)
        self.assertEqual((nothing["out_bytes"], nothing["in_bytes"]), (0, 0))
        # A peak may lie where moving tensors does not help, so this budget is halved until a plan moves something.
        budget = (everything["device_peak_bytes"] + nothing["device_peak_bytes"]) // 2
        some = run(budget=budget)
        if name != PLAN_MAY_MOVE_NOTHING:
            while some["planned_out_bytes"] == 0:
                budget //= 2
                self.assertGreater(budget, 0, "no plan moves a tensor")
                some = run(budget=budget)
            self.assertGreater(some["out_bytes"], 0)
        self.assertLess(some["out_bytes"], everything["out_bytes"])

    def test_networks(self):
        for name in networks.NAMES:
            self.check(name, all_budgets=True)

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
        for tier in TIERS:
            vdnn.torch.enable(tier=tier, min_size=MIN_SIZE, **EVERYTHING_LEAVES)
            try:
                self.assertEqual(networks.train("unet", contextlib.nullcontext), expected)
                self.assertGreater(vdnn.torch.report(quiet=True).devices["cpu"]["in_bytes"], 0)
            finally:
                vdnn.torch.disable()


if __name__ == "__main__":
    unittest.main()
