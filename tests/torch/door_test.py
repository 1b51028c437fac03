"""The first use compiles the binary of tier "native". In any state of compiler and cache, either tier "native" serves, or
one line of log gives the reason and tier "python" serves.

The real binary is compiled once. The cases use a script as the compiler, which counts its calls and yields that binary or
fails as the case requires.
"""

import contextlib
import os
import pathlib
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import torch

from vdnn.torch import door
from vdnn.torch.door import _sealed

# Trains with tier "auto" and prints the tier that served and whether gradients equal those without hooks. If tier
# "python" served, the program requests tier "native" by name and prints its error.
PROGRAM = """
import torch, vdnn.torch
x = torch.linspace(0, 1, 4096, requires_grad=True)
expected = torch.autograd.grad(x.sin().exp().sum(), x)[0]
with vdnn.torch.offload(budget=0, min_size=1):
    loss = x.sin().exp().sum()
loss.backward()
report = vdnn.torch.report(quiet=True)
print(report.tier, torch.equal(x.grad, expected), sum(figures["left"] for figures in report.devices.values()) > 0)
if report.tier == "python":
    try:
        vdnn.torch.enable(budget=0, tier="native")
    except RuntimeError as error:
        print(error)
"""

# Compiles in advance, without a stash.
AHEAD = ["-m", "vdnn.torch.door"]


def wait_until(holds, process):
    """Waits until condition() is true. That may take any time, but the process must not end meanwhile."""
    while not holds():
        if process.poll() is not None:
            raise AssertionError(f"the process has ended with status {process.returncode}")
        time.sleep(0.01)


class DoorTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.real = door.build()

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.cache = self.folder / "cache"
        self.calls = self.folder / "calls"

    def compiler(self, body):
        """A compiler that logs each call and runs `body`, in which $out is the output file and $real the right binary."""
        path = self.folder / f"compiler-{len(list(self.folder.iterdir()))}"
        path.write_text(
            f"#!/bin/bash\necho call >> {shlex.quote(str(self.calls))}\nreal={shlex.quote(str(self.real))}\n"
            'while [[ "$1" != -o ]]; do shift; done\nout=$2\n' + body
        )
        path.chmod(0o755)
        return str(path)

    def good_compiler(self):
        return self.compiler('cp "$real" "$out"\n')

    def number_of_calls(self):
        return self.calls.read_text().count("call") if self.calls.exists() else 0

    def environment(self, **changes):
        found = {**os.environ, "XDG_CACHE_HOME": str(self.cache), **changes}
        return {name: value for name, value in found.items() if value is not None}

    def start(self, *arguments, under=(), **environment):
        command = [*under, sys.executable, "-W", "ignore", *arguments]
        return subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=self.environment(**environment)
        )

    def run_program(self, under=(), **environment):
        """Returns the lines that the program prints and those that it logs."""
        process = self.start("-c", PROGRAM, under=under, **environment)
        output, errors = process.communicate()
        self.assertEqual(process.returncode, 0, errors)
        return output.splitlines(), errors.splitlines()

    def check_native_serves(self, calls, **options):
        self.assertEqual(self.run_program(**options), (["native True True"], []))
        self.assertEqual(self.number_of_calls(), calls)

    def check_python_serves(self, reason, **options):
        """Tier "python" serves, and tier "native" is refused for the same reason."""
        (served, refused), log = self.run_program(**options)
        self.assertEqual(served, "python True True")
        self.assertEqual(len(log), 1, log)
        self.assertRegex(log[0], "tier native is not available, tier python is used: .*" + reason)
        self.assertRegex(refused, "^vdnn.torch: tier native is not available: .*" + reason)

    def binaries(self):
        return sorted((self.cache / "vdnn").glob("*.so"))


class Compilers(DoorTest):
    def test_serves(self):
        self.check_native_serves(1, CXX=self.good_compiler())
        self.check_native_serves(1, CXX=self.good_compiler())  # from the cache
        self.assertEqual([path.name for path in self.binaries()], [self.real.name])

    def test_options_in_cxx(self):
        self.check_native_serves(1, CXX=f"env A=B {self.good_compiler()}")

    def test_none(self):
        empty = self.folder / "empty"
        empty.mkdir()
        self.check_python_serves("no C\\+\\+ compiler was found", CXX=None, PATH=str(empty))

    def test_named_one_is_missing(self):
        self.check_python_serves("no-such-compiler: No such file", CXX=str(self.folder / "no-such-compiler"))

    def test_refuses(self):
        body = "echo 'In file included from a.h' >&2; echo \"c++: error: unrecognized option '-std=c++20'\" >&2; exit 1\n"
        self.check_python_serves("cannot compile the hooks: c\\+\\+: error: unrecognized option", CXX=self.compiler(body))
        self.assertEqual(self.binaries(), [])

    def test_fails_without_a_word(self):
        self.check_python_serves("status 3", CXX=self.compiler("exit 3\n"))

    def test_makes_nothing(self):
        self.check_python_serves("status 0", CXX=self.compiler("exit 0\n"))

    def test_makes_what_is_no_library(self):
        """The error is the linker's, since the file is exactly what the compiler made."""
        self.check_python_serves("invalid ELF header", CXX=self.compiler('head -c 100000 /dev/zero > "$out"\n'))

    def test_is_killed(self):
        """A compiler that runs out of memory leaves half a file."""
        killed = self.compiler('head -c 1000 "$real" > "$out"; kill -KILL $$\n')
        self.check_python_serves("status -9", CXX=killed)
        self.assertEqual(self.binaries(), [])
        self.calls.unlink()
        self.check_native_serves(1, CXX=self.good_compiler())


class Folders(DoorTest):
    def test_a_file_in_its_place(self):
        self.cache.write_text("")
        self.check_python_serves("cache folder .* cannot be used .*Not a directory", CXX=self.good_compiler())

    def test_a_file_in_the_place_of_its_folder(self):
        self.cache.mkdir()
        (self.cache / "vdnn").write_text("")
        self.check_python_serves("cache folder .* cannot be used .*exists", CXX=self.good_compiler())

    def test_nobody_may_make_it(self):
        """Nobody, not even root, can create a folder in /proc."""
        self.check_python_serves("cache folder /proc/vdnn cannot be used", CXX=self.good_compiler(), XDG_CACHE_HOME="/proc")
        self.assertEqual(self.number_of_calls(), 0)

    def test_a_folder_in_the_place_of_the_binary(self):
        (self.cache / "vdnn" / self.real.name).mkdir(parents=True)
        self.check_python_serves("cannot be used", CXX=self.good_compiler())

    def test_read_only(self):
        """A read-only cache is used if it contains the binary; otherwise it is refused."""
        (self.cache / "vdnn").mkdir(parents=True)
        under = self.read_only(self.cache)
        self.check_python_serves("cannot be used .*Read-only|cannot be used .*Permission", under=under, CXX=self.good_compiler())
        self.assertEqual(self.number_of_calls(), 0)
        self.check_native_serves(1, CXX=self.good_compiler())
        self.check_native_serves(1, under=self.read_only(self.cache), CXX=self.good_compiler())

    def read_only(self, folder):
        """Returns a command under which the folder is read-only. (Permissions do not stop root.)"""
        if os.geteuid() != 0:
            for path in (folder / "vdnn", folder):
                path.chmod(0o555)
                self.addCleanup(path.chmod, 0o755)
            return ["sh", "-c", 'chmod 555 "$0" "$0/vdnn"; "$@"; status=$?; chmod 755 "$0" "$0/vdnn"; exit $status', str(folder)]
        under = ["unshare", "--mount", "sh", "-c", 'mount --bind -o ro "$0" "$0" && exec "$@"', str(folder)]
        if subprocess.run([*under, "true"], capture_output=True).returncode != 0:
            self.skipTest("this root may not mount a folder read-only")
        return under


class Libraries(DoorTest):
    """VDNN_STASH_LIBRARY names an unusable file: the import fails with the reason."""

    def check(self, name, words):
        process = self.start("-c", "import vdnn.torch", VDNN_STASH_LIBRARY=name)
        _, errors = process.communicate()
        self.assertEqual(process.returncode, 1)
        self.assertRegex(errors.splitlines()[-1], "^ImportError: vdnn.torch needs " + words)

    def test_missing(self):
        self.check(str(self.folder / "none.so"), "libvdnn_stash.so, which cannot be opened: .*none.so")

    def test_of_another_version(self):
        self.check("libc.so.6", "another version of libvdnn_stash.so than libc.so.6: .*vdnn_stash_streams")


class Caches(DoorTest):
    """A binary in the cache is used only if it is complete and made from these sources for this PyTorch."""

    def check_is_compiled_anew(self, damage):
        self.check_native_serves(1, CXX=self.good_compiler())
        (binary,) = self.binaries()
        damage(binary)
        self.check_native_serves(2, CXX=self.good_compiler())

    def test_cut_off(self):
        self.check_is_compiled_anew(lambda binary: os.truncate(binary, 5000))

    def test_seals(self):
        """A file of any wrong length is refused, and so is a file with one wrong bit."""
        identity, file = bytes(range(32)), self.folder / "file"
        whole = _sealed.seal(b"content of a library", identity)
        others = [whole[:length] for length in range(len(whole))] + [whole + b"x"]
        others += [whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :] for at in range(len(whole))]
        for content in [whole, *others]:
            file.write_bytes(content)
            self.assertEqual(_sealed.is_sealed(file, identity), content == whole, content)
        file.write_bytes(whole)
        self.assertFalse(_sealed.is_sealed(file, bytes(32)))
        self.assertFalse(_sealed.is_sealed(self.folder / "none", identity))

    def test_of_other_sources(self):
        """A complete binary of another PyTorch or another vdnn has this binary's name."""

        def replace(binary):
            binary.write_bytes(_sealed.seal(self.real.read_bytes(), bytes(32)))

        self.check_is_compiled_anew(replace)

    def test_without_a_compiler(self):
        """One line of log, if no compiler can rebuild the binary."""
        self.check_native_serves(1, CXX=self.good_compiler())
        os.truncate(self.binaries()[0], 5000)
        self.check_python_serves("no-such-compiler", CXX="no-such-compiler")

    def test_changed_sources(self):
        """Binaries of other versions have other names, so that each version finds its own."""
        package = self.folder / "package"
        shutil.copytree(pathlib.Path(door.__file__).parents[2], package / "vdnn")
        shutil.copytree(door._include_folder(), package / "vdnn/torch/include")
        path = {"PYTHONPATH": str(package)}
        self.check_native_serves(1, CXX=self.good_compiler(), **path)
        with open(package / "vdnn/torch/door/saved_tensor.h", "a") as header:
            header.write("// changed\n")
        self.check_native_serves(2, CXX=self.good_compiler(), **path)
        self.assertEqual(len(self.binaries()), 2)

    def test_name_of_the_version(self):
        self.assertTrue(self.real.name.startswith(f"door-{torch.__version__}-"), self.real.name)


class Processes(DoorTest):
    def slow_compiler(self):
        """Writes half of the binary, and the rest once the file `go` exists."""
        return self.compiler(
            'head -c 20000 "$real" > "$out"\n'
            f'cd {shlex.quote(str(self.folder))}\nwhile [[ -e calls && ! -e go ]]; do sleep 0.01; done\ncp "$real" "$out"\n'
        )

    def test_two_at_once(self):
        """The second process waits for the first, and neither sees half a binary."""
        compiler = self.slow_compiler()
        processes = [self.start("-c", PROGRAM, CXX=compiler) for _ in range(2)]
        wait_until(lambda: self.number_of_calls() > 0, processes[0])
        self.assertEqual(self.binaries(), [])
        # Both processes have opened the lock file.
        for process in processes:
            wait_until(lambda process=process: self.has_opened_the_lock(process) or self.number_of_calls() == 2, process)
        (self.folder / "go").touch()
        for process in processes:
            output, errors = process.communicate()
            self.assertEqual((output.strip(), errors), ("native True True", ""))
        self.assertEqual(self.number_of_calls(), 1)

    @staticmethod
    def has_opened_the_lock(process):
        with contextlib.suppress(OSError):
            for descriptor in pathlib.Path(f"/proc/{process.pid}/fd").iterdir():
                if os.readlink(descriptor).endswith(".lock"):
                    return True
        return False

    def test_without_locks(self):
        """Each process compiles for itself; the last binary replaces the other as a whole."""
        program = "import fcntl\ndef refuse(*_):\n  raise OSError('no locks here')\nfcntl.flock = refuse\n" + PROGRAM
        compiler = self.slow_compiler()
        processes = [self.start("-c", program, CXX=compiler) for _ in range(2)]
        for process in processes:
            wait_until(lambda: self.number_of_calls() == 2, process)
        self.assertEqual(self.binaries(), [])
        (self.folder / "go").touch()
        for process in processes:
            output, errors = process.communicate()
            self.assertEqual((output.strip(), errors), ("native True True", ""))

    def test_killed_midway(self):
        """The next process compiles, even if the compiler of the killed process continues and writes later."""
        process = self.start("-c", PROGRAM, CXX=self.slow_compiler())
        wait_until(lambda: self.number_of_calls() > 0, process)
        process.send_signal(signal.SIGKILL)
        process.stdout.close()
        process.stderr.close()
        process.wait()
        self.assertEqual(self.binaries(), [])
        self.check_native_serves(2, CXX=self.good_compiler())
        (self.folder / "go").touch()
        self.check_native_serves(2, CXX=self.good_compiler())
        self.assertEqual(list((self.cache / "vdnn").glob("*.scratch")), [])

    def test_compiled_ahead(self):
        process = self.start(*AHEAD, CXX=self.good_compiler())
        output, errors = process.communicate()
        self.assertEqual((process.returncode, output.strip(), errors), (0, str(self.binaries()[0]), ""))
        self.check_native_serves(1, CXX="no-such-compiler")

    def test_cannot_be_compiled_ahead(self):
        process = self.start(*AHEAD, CXX="no-such-compiler")
        output, errors = process.communicate()
        self.assertEqual((process.returncode, output), (1, ""))
        self.assertRegex(errors, "^vdnn.torch: no-such-compiler: No such file")


if __name__ == "__main__":
    unittest.main()
