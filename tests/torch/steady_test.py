"""A static network from its second step on: late fetches, page-locking, copied bytes, overlap and the memory of tensors."""

import collections
import contextlib
import hashlib
import os
import unittest
from unittest import mock

import networks
import torch
from own_hooks import serving

import vdnn.torch
from vdnn.torch import _library, _native_hooks, _report

STEPS = 5
SHAPE = (6, 3, 128, 128)
MIN_SIZE = 64 << 10
TIERS = ("python", "native")


def large_unet():
    torch.manual_seed(0)
    return networks.UNet(16, 4), torch.randn(*SHAPE), torch.randint(2, (SHAPE[0], *SHAPE[2:]))


class Run:
    """Trains a network through hooks and records the statistics and the peak of each step."""

    def __init__(self, tier=None, make=large_unet, min_size=MIN_SIZE, **options):
        network, inputs, targets = make()
        optimizer = torch.optim.SGD(network.parameters(), lr=0.01, momentum=0.9)
        self.hooks = None
        if tier is not None:
            self.hooks = vdnn.torch.make_hooks(vdnn.torch.make_settings(tier=tier, min_size=min_size, **options))
        self.figures, self.peaks = [], []
        for _ in range(STEPS):
            vdnn.torch.reset_peak_memory()
            optimizer.zero_grad()
            with self.serving():
                loss = torch.nn.functional.cross_entropy(network(inputs), targets)
            loss.backward()
            optimizer.step()
            self.peaks.append(vdnn.torch.peak_memory())
            if self.hooks:
                self.figures.append(self.hooks.stashes()["cpu"].statistics())
        # Digests, since a copy of the tensors would count in the peaks of later runs.
        self.state = [hashlib.sha256(tensor.numpy()).hexdigest() for tensor in network.state_dict().values()]

    def serving(self):
        return contextlib.nullcontext() if self.hooks is None else serving(self.hooks)

    def by_step(self, name):
        values = [0, *(figures[name] for figures in self.figures)]
        return [after - before for before, after in zip(values, values[1:])]


def eligible_bytes():
    """The bytes that a stash may move: the storages that autograd saves for the same U-Net, each version once."""
    network, inputs, targets = large_unet()
    seen, parameters = {}, {parameter.untyped_storage()._cdata for parameter in network.parameters()}
    held = {inputs.untyped_storage()._cdata, targets.untyped_storage()._cdata}

    def pack(tensor):
        storage = tensor.untyped_storage()
        if storage._cdata not in parameters | held and tensor.nbytes >= MIN_SIZE:
            seen[storage._cdata, tensor._version] = storage.nbytes(), tensor.detach()  # held, so that no address repeats
        return tensor.detach()

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda packed: packed):
        torch.nn.functional.cross_entropy(network(inputs), targets)
    return [size for size, _ in seen.values()]


class Steady(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        torch.set_num_threads(1)
        vdnn.torch.measure_memory()
        cls.alone = Run()

    def check_steady(self, run, first=1):
        """Checks the steps from `first` on. With an optimizer, `first` is 2, since the first step makes the
        optimizer's state."""
        for late in run.by_step("fetched_late")[1:]:
            self.assertLessEqual(late, 2)
        self.assertEqual(run.by_step("page_locks")[first:], [0] * (STEPS - first))
        self.assertEqual(run.figures[-1]["page_locks_when_repeated"], 0)
        self.assertEqual(run.by_step("plans")[first:], [0] * (STEPS - first))
        self.assertEqual(run.by_step("repeated_steps"), [0] + [1] * (STEPS - 1))
        self.assertEqual(run.by_step("diverged_steps"), [0] * STEPS)
        planned = [figures["planned_out_bytes"] for figures in run.figures]
        self.assertEqual(run.by_step("out_bytes")[1:], planned[:-1])
        self.assertEqual(run.by_step("in_bytes")[1:], planned[:-1])
        self.assertGreater(planned[0], 0)
        self.check_overlap(run)

    def check_overlap(self, run):
        overlap = _report.overlap_of(run.figures[-1])
        self.assertIsNotNone(overlap, "no copy was measured")
        report = str(vdnn.torch.Report(run.hooks.tier, {"cpu": run.figures[-1]}))
        self.assertIn(f"\n  overlap: during {overlap:.0%} of the copies' time the compute stream did not wait\n", report)

    def test_networks(self):
        for name in ("resnet18", "unet", "unet3d", "lstm", "transformer"):
            for tier in TIERS:
                with self.subTest(network=name, tier=tier):
                    self.check_steady(Run(tier, lambda name=name: networks.make(name), "4KiB", budget=0))

    def test_everything_leaves(self):
        """All eligible tensors leave, except for one window of tensors, which are read before their sources could be released."""
        sizes = sorted(eligible_bytes())
        for tier in TIERS:
            with self.subTest(tier):
                run = Run(tier, budget=0)
                self.check_steady(run)
                stay = sum(sizes) - run.figures[-1]["planned_out_bytes"]
                self.assertGreaterEqual(stay, 0)
                self.assertLessEqual(stay, sum(sizes[-2:]))

    def test_budget_is_kept(self):
        """Memory that autograd does not save, like the optimizer's state, counts in both tiers after measure_memory()."""
        for tier, part in (("native", 0.9), ("native", 0.7), ("native", 0.5), ("python", 0.6)):
            with self.subTest(tier=tier, part=part):
                budget = int(part * self.alone.peaks[-1])
                run = Run(tier, budget=budget)
                self.check_steady(run, first=2)
                self.assertLessEqual(run.figures[-1]["planned_peak_bytes"], budget)
                self.assertLessEqual(max(run.peaks[2:]), budget)

    def test_peak_of_unet(self):
        for tier in TIERS:
            with self.subTest(tier):
                run = Run(tier, budget=0)
                self.assertLessEqual(max(run.peaks[1:]), 0.45 * self.alone.peaks[-1], (run.peaks, self.alone.peaks))

    def test_budget_that_cannot_be_kept(self):
        for tier in TIERS:
            with self.subTest(tier):
                with self.assertLogs("vdnn.torch", "WARNING") as log:
                    run = Run(tier, budget="8MiB")
                self.assertEqual(len(log.output), 1, log.output)
                self.assertRegex(log.output[0], r"the budget of 8 MiB .* cannot be kept: a step needs \d+\.\d+ MiB")
                self.assertGreater(run.figures[-1]["planned_peak_bytes"], 8 << 20)
                self.assertGreater(run.figures[-1]["out_bytes"], 0)

    def test_a_graph_that_is_kept_into_the_next_step(self):
        """The program keeps a metric's output until after the next forward pass. Steps end nevertheless, and are learned."""
        for tier in TIERS:
            with self.subTest(tier):
                network, inputs, targets = networks.make("unet")
                hooks = vdnn.torch.make_hooks(vdnn.torch.make_settings(tier=tier, budget=0, min_size="4KiB"))
                late = []
                for _ in range(8):
                    hooks.start()
                    logits = network(inputs)
                    prediction = torch.sigmoid(logits)
                    hooks.stop()
                    torch.nn.functional.cross_entropy(logits, targets).backward()
                    late.append(hooks.stashes()["cpu"].statistics()["fetched_late"])
                figures = hooks.stashes()["cpu"].statistics()
                self.assertEqual(figures["live_handles"], 1)
                self.assertEqual((figures["steps"], figures["repeated_steps"]), (5, 4))
                self.assertLessEqual(late[-1] - late[-2], 2)
                self.assertEqual(prediction.shape, logits.shape)

    def test_what_fits_moves_nothing(self):
        for tier in TIERS:
            with self.subTest(tier):
                run = Run(tier, budget="1GiB")
                self.assertEqual(run.figures[-1]["out_bytes"], 0)
                self.assertGreater(run.figures[-1]["puts"], 0)

    def test_host_budget_exhausted(self):
        for tier in TIERS:
            with self.subTest(tier):
                with self.assertLogs("vdnn.torch", "WARNING") as log:
                    run = Run(tier, budget=0, host_budget="8MiB")
                self.assertEqual(len(log.output), 1, log.output)
                self.assertIn("the host budget of 8 MiB (8388608 bytes) is exhausted", log.output[0])
                self.assertGreater(run.figures[-1]["refused"], 1)
                self.assertLessEqual(run.figures[-1]["host_peak_bytes"], 8 << 20)
                self.assertGreater(run.figures[-1]["left"], 0)
                self.assertEqual(run.figures[-1]["page_locks_when_repeated"], 0)
                self.assertEqual(run.state, self.alone.state)
                report = str(vdnn.torch.Report(tier, {"cpu": run.figures[-1]}))
                refused = run.figures[-1]["refused"]
                self.assertIn(f"{refused} tensors stayed on the device because there was no page-locked memory for them", report)


class Overlap(unittest.TestCase):
    def report_of(self, copied, waited):
        figures = collections.defaultdict(int, copy_nanoseconds=copied, wait_nanoseconds=waited)
        return _report.overlap_of(figures), str(vdnn.torch.Report("native", {"cuda:0": figures}))

    def test_is_the_part_of_the_copies_time_without_waits(self):
        # In the last case the waits are longer than the copies: a copy may itself wait for other work before it begins.
        for copied, waited, overlap in ((400, 0, 1), (400, 100, 0.75), (400, 400, 0), (400, 900, 0)):
            with self.subTest(copied=copied, waited=waited):
                found, report = self.report_of(copied, waited)
                self.assertEqual(found, overlap)
                self.assertIn(f"  overlap: during {overlap:.0%} of the copies' time the compute stream did not wait", report)

    def test_copies_that_were_not_timed(self):
        found, report = self.report_of(0, 0)
        self.assertIsNone(found)
        self.assertNotIn("overlap", report)


class DefaultHostBudget(unittest.TestCase):
    """By default all stashes of a machine together use no more than half of its memory."""

    def setUp(self):
        self.all = _library.default_host_bytes()
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        self.assertTrue(0 < self.all <= memory // 2)

    def share(self, *, ranks, gpus, **options):
        environment = {} if ranks is None else {"LOCAL_WORLD_SIZE": ranks}
        with mock.patch.dict(os.environ, environment), mock.patch("torch.cuda.device_count", return_value=gpus):
            if ranks is None:
                os.environ.pop("LOCAL_WORLD_SIZE", None)
            return vdnn.torch.make_settings(budget=0, **options).stash_options()["host_bytes"]

    def test_one_process(self):
        self.assertEqual(self.share(ranks=None, gpus=0), self.all)
        self.assertEqual(self.share(ranks=None, gpus=1), self.all)
        self.assertEqual(self.share(ranks=None, gpus=8), self.all // 8)

    def test_ranks_that_see_one_gpu_or_all(self):
        self.assertEqual(self.share(ranks="8", gpus=1), self.all // 8)
        self.assertEqual(self.share(ranks="8", gpus=8), self.all // 8)
        self.assertEqual(self.share(ranks="2", gpus=8), self.all // 8, "of four GPUs each")
        self.assertEqual(self.share(ranks="4", gpus=0), self.all // 4, "on the CPU")

    def test_text_that_is_no_number(self):
        for ranks in ("", "0", "many", "-3"):
            self.assertEqual(self.share(ranks=ranks, gpus=1), self.all)

    def test_a_given_budget_is_not_divided(self):
        self.assertEqual(self.share(ranks="8", gpus=8, host_budget="3GiB"), 3 << 30)


class BadOptions(unittest.TestCase):
    def test_refused_with_the_options_name(self):
        for options, error, words in (
            ({"budget": "10 gigs"}, ValueError, "budget is '10 gigs'"),
            ({"budget": -1}, ValueError, "budget is -1"),
            ({"budget": True}, TypeError, "budget is True"),
            ({"budget": 1.5}, TypeError, "budget is 1.5"),
            ({"budget": "1GiB", "host_budget": 0}, ValueError, "host_budget is 0"),
            ({"budget": "1GiB", "min_size": 0}, ValueError, "min_size is 0"),
            ({"budget": "1GiB", "window": "0MiB"}, ValueError, "window is 0"),
            ({"budget": "1GiB", "tier": "C"}, ValueError, "tier is 'C'"),
        ):
            with self.subTest(options), self.assertRaisesRegex(error, words):
                vdnn.torch.enable(**options)

    def test_enabled_twice(self):
        vdnn.torch.enable(budget="1GiB", tier="python")
        try:
            with self.assertRaisesRegex(RuntimeError, "enabled already"):
                vdnn.torch.enable(budget="1GiB", tier="python")
        finally:
            vdnn.torch.disable()

    def test_sizes(self):
        for text, size in (("10GiB", 10 << 30), ("3.5MB", 3_500_000), ("512", 512), (7, 7), ("1.5KiB", 1536)):
            self.assertEqual(vdnn.torch.parse_size(text, "size"), size)

    def test_binary_that_does_not_fit(self):
        """One line of log gives the reason, and tier "python" serves."""
        found = _native_hooks.NativeHooks

        def refuse(settings):
            raise _native_hooks.DoesNotFit("no compiler")

        vdnn.torch._hooks.NativeHooks = refuse
        try:
            with self.assertLogs("vdnn.torch", "WARNING") as log:
                hooks = vdnn.torch.make_hooks(vdnn.torch.make_settings(budget=0))
            self.assertEqual((len(log.output), hooks.tier), (1, "python"))
            with self.assertRaisesRegex(RuntimeError, "no compiler"):
                vdnn.torch.make_hooks(vdnn.torch.make_settings(budget=0, tier="native"))
        finally:
            vdnn.torch._hooks.NativeHooks = found


if __name__ == "__main__":
    unittest.main()
