"""PyTorch itself trains networks on the stand-in for CUDA: without vdnn, on vdnn's pools, and with offloading.

In every order of streams, the bits are those of the CPU and the judge finds nothing. Offloading with a planted mistake
shows that the judge works: it reports the mistake with the operators' names.
"""

import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import fake_gpu
import hooks
import trials
from train import wrong_lines
from trials import environment_of_children, options, run

NETWORKS = ("resnet18", "unet", "unet3d")


class FakeGpuTest(unittest.TestCase):
    maxDiff = None

    def expect_clean(self, network, *arguments):
        """Expects equal bits and no findings in every order. If the program offloads, tensors must have moved on each GPU."""
        chosen = dict(argument.removeprefix("--").partition("=")[::2] for argument in arguments)
        rows = run(network, *arguments, seeds=options.seeds)
        for row in rows:
            with self.subTest(network=network, arguments=arguments, seed=row["seed"]):
                self.assertEqual(row["findings"], [])
                self.assertEqual((row["status"], row["different"]), (0, []), row["text"])
                self.assertEqual(row["decisions"], rows[0]["decisions"], "the stash's decisions depend on the progress of copies")
                if "offload" in chosen:
                    self.expect_moved(row["decisions"], chosen["offload"], int(chosen.get("gpus", 1)))

    def expect_moved(self, figures_of_devices, offload, gpus):
        self.assertEqual(set(figures_of_devices), {f"cuda:{device}" for device in range(gpus)})
        for device, figures in figures_of_devices.items():
            for name in ("left", "in_bytes") if offload == "hooks" else ("left", "in_bytes", "fetched_ahead"):
                self.assertGreater(figures[name], 0, f"{device}: {name}")

    def expect_found(self, network, pattern, *arguments, **how):
        """Expects a finding with this pattern in every order."""
        for row in run(network, *arguments, seeds=3, **how):
            with self.subTest(network=network, arguments=arguments, seed=row["seed"]):
                self.assertTrue(any(re.search(pattern, line) for line in row["findings"]), row)


class TrainingTest(FakeGpuTest):
    def test_plain(self):
        for network in options.networks:
            self.expect_clean(network)

    def test_on_pools(self):
        for network in options.networks:
            self.expect_clean(network, "--pool")

    def test_expandable_segments(self):
        for row in run("unet", environment={"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}, seeds=3):
            self.assertEqual((row["status"], row["different"], row["findings"]), (0, [], []), row["text"])

    def test_offloading_by_hooks(self):
        self.expect_clean("unet", "--offload=hooks")
        self.expect_clean("unet", "--offload=hooks", "--pool")


class PoolTest(unittest.TestCase):
    def result(self, *arguments):
        script = fake_gpu.HERE / "out_of_memory.py"
        done = subprocess.run(
            [sys.executable, script, os.pathsep.join(options.stand_in), str(fake_gpu.ROOT / "python"), *arguments],
            env=environment_of_children(), capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def test_use_pool_after_hooks_is_refused(self):
        found = self.result("late")
        self.assertEqual(found["type"], "builtins.RuntimeError")
        self.assertIn("use_pool() must be called before enable() and offload()", found["text"])

    def test_a_refusal_is_out_of_memory_error(self):
        found = self.result()
        refused = found["refused"]
        for where in ("a tensor", "in backward", "beyond the budget"):
            self.assertEqual(refused[where]["type"], "torch.OutOfMemoryError", where)
            self.assertRegex(refused[where]["text"], r"^CUDA out of memory\. cuda:0: asked .* budget 64 MiB", where)
        self.assertEqual(refused["budget of 0"]["type"], "builtins.ValueError")
        self.assertEqual(refused["used twice"]["type"], "builtins.RuntimeError")
        self.assertIsNotNone(refused["no such GPU"])
        self.assertEqual(found["budget"], (64 << 20) * 10 // 11)
        self.assertEqual(found["in use"], 4096)  # the block of a request for 4000 bytes
        self.assertGreater(found["peaks"][0], 60 << 20)
        self.assertEqual(found["peaks"][1], 4096)


class OperatorsTest(unittest.TestCase):
    def test_operators_without_a_twin_on_the_cpu_are_refused(self):
        done = subprocess.run(
            [sys.executable, "-W", "ignore", fake_gpu.HERE / "on_fake_gpu.py", os.pathsep.join(options.stand_in),
             options.operators, fake_gpu.HERE / "refused_operators.py"],
            env=environment_of_children(), capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        refused = json.loads(done.stdout)
        self.assertEqual(len(refused), 3)
        for operator, error in refused.items():
            with self.subTest(operator=operator):
                self.assertIsNotNone(error)
                self.assertEqual(error["type"], "NotImplementedError", error["text"])
                self.assertIn(
                    f"fake GPU: {operator} cannot be computed (the CPU does not have it, it draws random numbers, or it makes a "
                    "tensor of its own)", error["text"])  # fmt: skip


class JudgeTest(FakeGpuTest):
    PATTERNS = {
        "copy_out_does_not_wait": r"'a copy' reads what 'aten::convolution' writes",
        "source_freed_too_early": r"'aten::\w+' writes what 'a copy' reads",
        "reader_does_not_wait": r"'aten::convolution_backward' reads what 'a copy' writes",
        "target_freed_too_early": r"'a copy' writes what 'aten::convolution_backward' reads",
    }

    def test_mistakes_are_reported_by_name(self):
        self.assertEqual(set(self.PATTERNS), set(hooks.MISTAKES))
        for mistake, pattern in self.PATTERNS.items():
            self.expect_found("unet", pattern, "--offload=hooks", f"--mistake={mistake}")


class LostWaitTest(FakeGpuTest):
    """The judge reports a stash that lacks one of its waits, unless another wait implies the same order."""

    def test_lost_waits_are_reported_by_name(self):
        findings = []
        for wait in range(2, 8):
            rows = run("unet3d", "--offload=python", "--min-size=4096", seeds=1, environment={"VDNN_STAND_IN_LOSE_WAIT": str(wait)})
            findings.append(" ".join(line for row in rows for line in row["findings"]))
        self.assertGreaterEqual(sum(map(bool, findings)), 3, findings)
        for pattern in (r"'a copy' reads what 'aten::\w+' writes", r"'aten::\w+' writes what 'a copy' reads"):
            self.assertTrue(any(re.search(pattern, text) for text in findings), findings)


class TierTest(FakeGpuTest):
    # From the second step on, the stash follows a plan. If two networks train in turns, each on its own stream, only
    # the order of the stash's streams protects a page-locked block that passes from one network to the other.
    def expect_clean_tier(self, tier):
        for network in options.networks:
            for streams in ("--streams=0", "--streams=2"):
                self.expect_clean(network, f"--offload={tier}", "--steps=3", streams)
                self.expect_clean(network, f"--offload={tier}", "--steps=3", streams, "--pool")

    def test_branches_on_two_streams(self):
        """One stream reads a tensor that was fetched ahead for another stream. In a budget in which nothing fits, a tensor that
        was kept on one stream leaves at a save on the other."""
        for tier in ("python", "native"):
            for network, budget in (("branched", "--budget=0"), ("branched_beside", "--budget=1")):
                for pool in ((), ("--pool",)):
                    self.expect_clean(network, f"--offload={tier}", "--steps=3", budget, *pool)

    def test_memory_that_is_no_pools(self):
        """Memory of no pool is not ordered after the offload stream, so the stash holds it until a stream has waited for the copy."""
        for tier in ("python", "native"):
            for pool in ((), ("--pool",)):
                self.expect_clean("placed", f"--offload={tier}", "--steps=3", *pool)

    def test_overlap_is_reported(self):
        for tier in ("python", "native"):
            for row in run("unet3d", f"--offload={tier}", seeds=1):
                self.assertEqual(list(row["overlaps"]), ["cuda:0"], row["text"])
                self.assertIsNotNone(row["overlaps"]["cuda:0"])

    def test_a_tensor_is_saved_on_another_stream_than_its_own(self):
        """The forward pass releases the tensor although its own stream has not waited for the stream that saves it."""
        for pool in ((), ("--pool",)):
            self.expect_clean("forked", *pool)
            for tier in ("python", "native"):
                self.expect_clean("forked", f"--offload={tier}", "--steps=3", *pool)

    def test_two_gpus(self):
        for tier in ("python", "native"):
            for pool in ((), ("--pool",)):
                self.expect_clean("unet3d", f"--offload={tier}", "--steps=3", "--streams=2", "--gpus=2", *pool)

    def test_the_current_gpu_is_another_one(self):
        for tier in ("python", "native"):
            with self.subTest(tier=tier):
                done = subprocess.run(
                    [sys.executable, "-W", "ignore", fake_gpu.HERE / "on_fake_gpu.py", os.pathsep.join(options.stand_in),
                     options.operators, fake_gpu.HERE / "another_gpu.py", tier],
                    env=environment_of_children({"VDNN_STAND_IN_GPUS": "2"}), capture_output=True, text=True)
                self.assertEqual((done.returncode, done.stdout.strip()), (0, "cuda:1 True True"), done.stderr)

    def test_no_room_for_a_fetch_ahead(self):
        """The tensor being read is fetched. The other tensor is fetched only when it is read itself."""
        for tier in ("python", "native"):
            for allocator in ("own", "pool"):
                with self.subTest(tier=tier, allocator=allocator), tempfile.NamedTemporaryFile("r") as report:
                    done = subprocess.run(
                        [sys.executable, "-W", "ignore", fake_gpu.HERE / "no_room_ahead.py", os.pathsep.join(options.stand_in),
                         options.operators, str(fake_gpu.ROOT / "python"), tier, allocator],
                        env=environment_of_children({"VDNN_STAND_IN_REPORT": report.name}), capture_output=True, text=True)
                    self.assertEqual(done.returncode, 0, done.stderr)
                    found = json.loads(done.stdout)
                    before, full, after = found["late"]
                    self.assertTrue(found["equal"])
                    self.assertGreater(full, before)
                    self.assertEqual(after, before)
                    self.assertEqual(wrong_lines(pathlib.Path(report.name)), [])

    def test_python(self):
        self.expect_clean_tier("python")

    def test_native(self):
        self.expect_clean_tier("native")


class OneBudgetTest(FakeGpuTest):
    """The pools and the stash share the budget of use_pool(): enable() is called without one."""

    BUDGET = 30  # in MiB. Plain training has a peak of 32.4 MiB. With offloading, pools from 26 MiB on are large enough.
    PROGRAM = ("unet3d", "--copies=16", f"--pool={BUDGET}MiB", "--steps=3")

    def test_the_pool_alone_runs_out_of_memory(self):
        (row,) = run(*self.PROGRAM, seeds=1)
        self.assertEqual((row["status"], row["findings"]), (1, []), row["text"])
        pattern = rf"(?m)^torch\.OutOfMemoryError: CUDA out of memory\. cuda:0: asked .* budget {self.BUDGET} MiB"
        self.assertRegex(row["text"], pattern)

    def test_with_offloading_it_trains(self):
        for tier in ("python", "native"):
            self.expect_clean(*self.PROGRAM, f"--offload={tier}", "--enable")


class BuffersTest(FakeGpuTest):
    """Batch normalisation updates its statistics after autograd has saved them, so a copy of them would race."""

    # For each tier: a source file, the condition in it under which a tensor goes to the stash as soon as autograd saves it, and
    # a condition that always holds.
    CONDITIONS = {
        "python": ("_python_hooks.py", "if block.puts or tensor.requires_grad:", "if True:"),
        "native": ("door/device_stash.cpp", "if (block.puts > 0 || tensor.requires_grad())", "if (true)"),
    }

    def test_they_stay(self):
        for tier in self.CONDITIONS:
            self.expect_clean("resnet18", f"--offload={tier}", "--min-size=1")

    def test_without_deferring_they_race(self):
        for tier, (source, condition, always) in self.CONDITIONS.items():
            with tempfile.TemporaryDirectory() as folder:
                shutil.copytree(fake_gpu.ROOT / "include", pathlib.Path(folder, "include"))
                package = pathlib.Path(folder, "python")
                shutil.copytree(fake_gpu.ROOT / "python", package)
                file = package / "vdnn/torch" / source
                text = file.read_text()
                self.assertEqual(text.count(condition), 1, source)
                file.write_text(text.replace(condition, always))
                self.expect_found(
                    "resnet18", r"'aten::\w*batch_norm\w*' writes what 'a copy' reads|'a copy' reads what 'aten::\w*batch_norm",
                    f"--offload={tier}", "--min-size=1", python_path=package)  # fmt: skip


class DoorCheckTest(unittest.TestCase):
    """scripts/gpu-check --stage door on a small network. Overlap and the profiler's view of waits are judged from given figures,
    since a fake has no link and no CUPTI. Sanitizers are not tested."""

    WAITS = re.compile(r"cu(da)?(Stream|Device|Event|Ctx)Synchronize")

    def run_check(self, *arguments, report=""):
        check, *others = arguments
        program = [fake_gpu.ROOT / "bench/torch/door_check.py", check, "--network=small-unet", "--min-size=4096", *others]
        return subprocess.run(
            [sys.executable, "-W", "ignore", fake_gpu.HERE / "on_fake_gpu.py", os.pathsep.join(options.stand_in),
             options.operators, *program],
            env=environment_of_children({"VDNN_STAND_IN_REPORT": str(report)}), capture_output=True, text=True)

    def expect_pass(self, *arguments):
        for tier in ("python", "native"):
            with self.subTest(tier=tier):
                done = self.run_check(*arguments, f"--tier={tier}")
                self.assertEqual(done.returncode, 0, done.stderr)
                print(done.stdout, end="", flush=True)

    def expect_fail(self, pattern, *arguments):
        done = self.run_check(*arguments, "--tier=python")
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertRegex(done.stderr, pattern)

    def test_bits(self):
        self.expect_pass("bits", "--batch=2", "--budget=18000000")
        self.expect_fail("bits: nothing was moved", "bits", "--batch=2", "--budget=1000000000")

    def test_peak(self):
        self.expect_pass("peak", "--budget=43000000")
        self.expect_pass("peak", "--network=small-resnet18", "--batch=32", "--budget=174700000")
        self.expect_pass("peak", "--network=small-unet3d", "--batch=4", "--budget=5400000")
        self.expect_fail("peak: the peak exceeds the budget", "peak", "--budget=20000000")
        self.expect_fail("peak: the peak is not below that of plain training", "peak", "--budget=1000000000")

    def test_batch(self):
        self.expect_pass("batch", "--batch=16")
        self.expect_fail("batch: training with offloading runs out", "batch", "--batch=16", "--budget=1000000000")

    def test_waits(self):
        """PyTorch's own check of synchronisation passes. The profiler then finds no call, since calls come from CUPTI."""
        self.expect_fail("waits: the profiler has recorded no call of CUDA", "waits", "--batch=2", "--budget=27000000")
        self.expect_fail("waits: nothing was moved", "waits", "--batch=2", "--budget=1000000000")

    def test_overlap(self):
        done = self.run_check("overlap", "--batch=2", "--budget=27000000", "--tier=native")
        # A fake has no link, so either verdict is right.
        self.assertRegex(done.stdout + done.stderr, r'"verdict": "(not )?judged|overlap: only -?\d+% of the copies')
        self.expect_fail("overlap: nothing was moved", "overlap", "--batch=2", "--budget=1000000000")

    def test_judgement_of_waits_and_overlap(self):
        sys.path.append(str(fake_gpu.ROOT / "bench/torch"))
        import door_check

        profiler = {"cudaLaunchKernel": 9, "cudaDeviceSynchronize": 1}
        self.assertEqual(door_check.judge_waits(profiler, profiler)["waits"], {"cudaDeviceSynchronize": (1, 1)})
        with self.assertRaisesRegex(door_check.CheckFailed, "the host waits within a step"):
            door_check.judge_waits({**profiler, "cudaStreamSynchronize": 1}, {**profiler, "cudaStreamSynchronize": 3})
        # A plain step of 100 ms, a forward pass of 35 ms, and copies of 30 ms in one direction and 25 ms in the other.
        self.assertEqual(door_check.judge_overlap(0.1, 0.035, 0.102, 0.03, 0.025)["verdict"], "judged")
        with self.assertRaisesRegex(door_check.CheckFailed, "only 83% of the copies' 30.0 ms are hidden"):
            door_check.judge_overlap(0.1, 0.035, 0.105, 0.03, 0.025)
        for out_seconds, in_seconds in ((0.04, 0.025), (0.03, 0.07)):
            verdict = door_check.judge_overlap(0.1, 0.035, 0.2, out_seconds, in_seconds)["verdict"]
            self.assertTrue(verdict.startswith("not judged"), verdict)

    def calls_of_steps(self, tier, steps):
        with tempfile.NamedTemporaryFile("r") as report:
            done = self.run_check("steps", f"--tier={tier}", f"--steps={steps}", "--batch=2", report=report.name)
            self.assertEqual(done.returncode, 0, done.stderr)
            lines = [line.split() for line in report.read().splitlines()]
        return {line[1]: int(line[2]) for line in lines if line[0] == "call"}

    def test_a_step_does_not_wait_on_the_host(self):
        for tier in ("python", "native"):
            with self.subTest(tier=tier):
                few, more = (self.calls_of_steps(tier, steps) for steps in (4, 6))
                waits = {name: count - few.get(name, 0) for name, count in more.items() if self.WAITS.match(name)}
                self.assertTrue(waits, more)
                self.assertEqual(set(waits.values()), {0}, waits)
                self.assertGreater(more["cudaMemcpyAsync"], few["cudaMemcpyAsync"])


def classes_without_ctest():
    """The classes of tests that no list --tests in CMakeLists.txt names."""
    lists = re.findall(r"--tests([\w\s]+)\)", (fake_gpu.HERE / "CMakeLists.txt").read_text())
    suites = unittest.defaultTestLoader.loadTestsFromModule(sys.modules[__name__])
    return {type(test).__name__ for suite in suites for test in suite} - set(" ".join(lists).split())


def main():
    if missing := classes_without_ctest():
        sys.exit(f"no ctest runs {', '.join(sorted(missing))}: add each to a list --tests in {fake_gpu.HERE / 'CMakeLists.txt'}")
    parser = argparse.ArgumentParser(description=__doc__)
    trials.add_options(parser)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--networks", nargs="+", default=NETWORKS, choices=NETWORKS)
    parser.add_argument("--tests", nargs="*", default=[], help="of unittest; all by default")
    trials.parse_options(parser)
    unittest.main(argv=[sys.argv[0], *options.tests], verbosity=2)


if __name__ == "__main__":
    main()
