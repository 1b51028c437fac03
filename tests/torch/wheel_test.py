"""The wheel of vdnn.torch, installed in a fresh virtual environment, serves a program in both tiers, outside the source tree.

scripts/wheel builds the wheel. The environment borrows the PyTorch of this Python. The binary of tier "native" is compiled from
the wheel's own sources into a separate cache.
"""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

import torch

ROOT = pathlib.Path(__file__).resolve().parents[2]
TIERS = ("native", "python")

# The two lines that enable vdnn.torch, and a few training steps.
PROGRAM = """
import sys
import torch
import vdnn.torch
vdnn.torch.enable(budget="1MiB", tier=sys.argv[1])
x = torch.linspace(0, 1, 1 << 20, requires_grad=True)
for step in range(3):
    y = x * 2
    for layer in range(4):
        y = y.sin()
    y.sum().backward()
report = vdnn.torch.report(quiet=True)
print(vdnn.torch.__file__)
print(report.tier, report.devices["cpu"]["left"] > 0)
"""

HEADERS = """
from vdnn.torch import door
print(door._include_folder())
"""

POOL = """
from vdnn.torch import _pool
print(_pool._load()._name)
"""


def run(*command, **options):
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, **options)


class Wheel(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(scratch.cleanup)
        cls.folder = pathlib.Path(scratch.name)
        cls.wheel = cls.build(cls.folder / "wheel")
        cls.python, cls.site = cls.make_environment(cls.folder / "environment")

    @classmethod
    def build(cls, output, *options):
        done = run(ROOT / "scripts/wheel", "--output", output, *options)
        if done.returncode != 0:
            raise AssertionError(done.stdout + done.stderr)
        (wheel,) = output.glob("*.whl")
        return wheel

    @classmethod
    def make_environment(cls, folder):
        """Makes an environment with the wheel and, through a .pth file, this Python's PyTorch. Returns its Python and site folder."""
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        python = folder / "bin/python"
        pip = (python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index", "--no-deps")
        installed = run(*pip, cls.wheel)
        if installed.returncode != 0:
            raise AssertionError(installed.stderr)
        site = pathlib.Path(run(python, "-c", "import sysconfig; print(sysconfig.get_paths()['purelib'])").stdout.strip())
        (site / "borrowed.pth").write_text(f"{pathlib.Path(torch.__file__).parents[1]}\n")
        return python, site

    def run_installed(self, *arguments):
        """Returns the output of the environment's Python, run in a folder outside the source tree."""
        own = {name: value for name, value in os.environ.items() if not name.startswith(("VDNN_", "PYTHON"))}
        own["XDG_CACHE_HOME"] = str(self.folder / "cache")
        done = run(self.python, "-W", "ignore", *arguments, cwd=self.folder, env=own)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    def test_two_lines(self):
        for tier in TIERS:
            with self.subTest(tier):
                file, served = self.run_installed("-c", PROGRAM, tier).splitlines()
                self.assertEqual((file, served), (str(self.site / "vdnn/torch/__init__.py"), f"{tier} True"))

    def test_example(self):
        """Trains a U-Net in a budget that PyTorch alone exceeds."""
        example = shutil.copy(ROOT / "examples/pytorch_offload.py", self.folder)
        for tier in TIERS:
            with self.subTest(tier):
                printed = self.run_installed(example, "--tier", tier, "--steps", "4")
                self.assertIn("losses are equal to the bit", printed)
                self.assertIn(f"tier {tier}", printed)

    def test_native_is_compiled_from_the_wheel(self):
        self.assertEqual(self.run_installed("-c", HEADERS).strip(), str(self.site / "vdnn/torch/include"))
        binary = pathlib.Path(self.run_installed("-m", "vdnn.torch.door").strip())
        self.assertEqual(binary.parent, self.folder / "cache/vdnn")
        self.assertTrue(binary.exists())

    def test_has_the_pool(self):
        self.assertEqual(self.run_installed("-c", POOL).strip(), str(self.site / "vdnn/torch/lib/libvdnn_torch.so"))

    def test_the_same_sources_make_the_same_wheel(self):
        again = self.build(self.folder / "again")
        self.assertEqual((again.name, again.read_bytes()), (self.wheel.name, self.wheel.read_bytes()))

    def test_tag(self):
        """The tag in the wheel's file name, by which pip chooses a wheel, is the one that auditwheel finds."""
        done = run(ROOT / "scripts/wheel", "--output", self.folder / "audited", "--audit")
        if "pip cannot fetch auditwheel" in done.stderr and os.environ.get("VDNN_REQUIRE_TORCH") != "1":
            self.skipTest(done.stderr.strip())
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        tag = self.wheel.stem.split("-py3-none-")[1]
        self.assertIn(f"auditwheel finds {tag}", done.stdout)


if __name__ == "__main__":
    unittest.main()
