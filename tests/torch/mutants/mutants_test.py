"""Tests notice vdnn.torch with one mistake in the stash or in a tier. One of three judges notices: the fake GPU (its judge,
the bits, decisions that differ between orders), irregular steps on the CPU (stress_test.py) or the table of semantics.

Prints a table of the judges that noticed each mutant, and how. The fake GPU must report each mutant of the stash, by name if
a wait is missing. One of the three must report each mutant of a tier. None may report the code without a mistake.
"""

import argparse
import ctypes
import dataclasses
import os
import pathlib
import re
import subprocess
import sys
import unittest

import tier_mutants
from tier_mutants import ROOT

sys.path.insert(1, str(ROOT / "tests/torch/fake_gpu"))
import trials  # noqa: E402
from trials import options  # noqa: E402

TIERS = ("python", "native")
SEEDS = 3
# The programs that run with a mutant on the fake GPU, until one shows the mistake. With --pool, sources return to the
# pool at put. With --streams=2, page-locked blocks pass from one stream to the other. In branched, one stream reads a
# tensor that another stream fetched. In branched_beside, nothing fits in the budget, and one stream lets a tensor leave
# that another stream made. In forked, one stream saves a tensor of another stream, which continues meanwhile. In
# placed, some memory comes from outside the pool. In branched with --pool, some memory is not reused between a copy out
# and the copy back, so that only the fetch's own wait orders the two.
FAKE_GPU_PROGRAMS = (("unet3d",), ("unet3d", "--pool"), ("unet3d", "--streams=2"), ("rewritten", "--pool"), ("branched",),
                     ("branched_beside", "--budget=1"), ("forked",), ("placed", "--pool"), ("branched", "--pool"))

# Each mutant of the stash, with the pattern that the fake GPU must report.
COPY, OPERATOR = "'a copy'", r"'aten::\w+(\.\w+)?'"
REPORTS = {
    "CopyOutDoesNotWaitForTheSource": f"{COPY} reads what {OPERATOR} writes",
    "SourceIsReleasedBeforeItsCopy": f"{OPERATOR} writes what {COPY} reads",
    "FetchDoesNotWaitForTheTarget": f"{COPY} writes what {OPERATOR} (reads|writes)",
    "FetchIgnoresItsOwnCopyOut": f"{COPY} reads what {COPY} writes",
    "ReaderDoesNotWaitForTheFetch": f"{OPERATOR} reads what {COPY} writes",
    "CopyOutIgnoresTheBlocksLastFetch": f"{COPY} writes what {COPY} reads",
    "LeavingIgnoresTheProducer": f"{COPY} reads what {OPERATOR} writes",
    "IdentityByAddress": "memory that nobody holds",
    "VersionIgnored": r"different bits in .*\b(weight|bias)|modified by an inplace operation",
    "DecidesByPolling": "decisions differ between orders: .*(left|out_bytes|fetched)",
}

# On the CPU these show only with delayed copies and poisoned freed memory; irregular steps must notice them.
NOTICED_BY_STRESS = ("SourceIsReleasedBeforeItsCopy", "ReaderDoesNotWaitForTheFetch")


@dataclasses.dataclass(frozen=True)
class Subject:
    """One subject of the judges: a tier over the stash library with mutants."""

    tier: str
    stash_mutant: str = ""  # none
    python_path: pathlib.Path = ROOT / "python"

    def environment(self, library):
        return {"VDNN_STASH_LIBRARY": library, "VDNN_STASH_MUTANT": self.stash_mutant}


# --- judges: each returns its finding, or "" ---------------------------------------------------------------------------


def expect_tier(text):
    """A mutant of tier native that cannot be compiled proves nothing."""
    if 'tier="native" is not available' in text:
        raise AssertionError(text)


def noticed_in_rows(rows):
    """The judge's findings come first, since they name the accesses."""
    for row in rows:
        expect_tier(row["text"])
        if row["findings"]:
            return row["findings"][0]
        if row["different"]:
            return f"different bits in {', '.join(row['different'][:8])}"
        if row["status"] != 0:
            return f"status {row['status']}: {(row['text'].strip().splitlines() or [''])[-1]}"
    decisions = [row["decisions"] for row in rows]
    different = {name for device, figures in decisions[0].items() for name in figures
                 if any(figures[name] != others[device][name] for others in decisions)}
    return f"decisions differ between orders: {', '.join(sorted(different))}" if different else ""


def by_fake_gpu(subject):
    for network, *arguments in FAKE_GPU_PROGRAMS:
        rows = trials.run(network, f"--offload={subject.tier}", "--steps=3", *arguments, seeds=SEEDS,
                          python_path=subject.python_path, environment=subject.environment(options.mutant_stash_on_stand_in))
        if noticed := noticed_in_rows(rows):
            return noticed
    return ""


def by_unittest(subject, script, *arguments):
    """A test program on the CPU, which fails or crashes if it notices something."""
    environment = {**os.environ, **subject.environment(options.mutant_stash), "PYTHONPATH": str(subject.python_path)}
    done = subprocess.run([sys.executable, "-W", "ignore", ROOT / "tests/torch" / script, *arguments], env=environment,
                          capture_output=True, text=True)
    if done.returncode < 0:
        return f"ended by signal {-done.returncode}"
    if done.returncode == 0:
        return ""
    expect_tier(done.stderr)
    failures = re.findall(r"^(?:FAIL|ERROR): .*", done.stderr, re.MULTILINE)
    if not failures:
        raise AssertionError(f"{script} has not run: {done.stderr}")
    return failures[0]


def by_stress(subject):
    return by_unittest(subject, "stress_test.py", str(SEEDS), f"Stress.test_{subject.tier}")


def by_semantics(subject):
    return by_unittest(subject, "semantics_test.py", "-k", f"test_{subject.tier}_equals")


JUDGES = {"fake GPU": by_fake_gpu, "stress": by_stress, "semantics": by_semantics}

# --- the table ---------------------------------------------------------------------------------------------------------


def stash_mutants():
    library = ctypes.CDLL(options.mutant_stash)
    library.vdnn_stash_mutants.restype = ctypes.c_char_p
    return library.vdnn_stash_mutants().decode().split()


def chosen(names):
    return [name for name in names if not options.only or name in options.only]


class MutantsTest(unittest.TestCase):
    def judge(self, name, subject):
        """Returns the finding of each judge and prints one line of the table per judge."""
        noticed = {}
        for judge, by in JUDGES.items():
            noticed[judge] = by(subject)
            print(f"{name:33} {subject.tier:7} {judge:10} {noticed[judge] or '-'}", flush=True)
        return noticed

    def test_code_without_a_mistake_is_not_reported(self):
        for tier in options.tiers:
            with self.subTest(tier=tier):
                self.assertEqual(list(self.judge("none", Subject(tier)).values()), ["", "", ""])

    def test_the_fake_gpu_reports_each_mutant_of_the_stash(self):
        self.assertEqual(set(stash_mutants()), set(REPORTS))
        for name in chosen(stash_mutants()):
            for tier in options.tiers:
                with self.subTest(mutant=name, tier=tier):
                    noticed = self.judge(name, Subject(tier, stash_mutant=name))
                    self.assertRegex(noticed["fake GPU"], REPORTS[name])
                    if name in NOTICED_BY_STRESS:
                        self.assertTrue(noticed["stress"], "delays or poison do not work")

    def test_each_mutant_of_a_tier_is_noticed(self):
        for mutant in tier_mutants.MUTANTS:
            if mutant.tier in options.tiers and mutant.name in chosen([mutant.name]):
                with self.subTest(mutant=mutant.name, tier=mutant.tier):
                    path = tier_mutants.python_path(mutant, pathlib.Path(options.folder) / "tiers")
                    noticed = self.judge(mutant.name, Subject(mutant.tier, python_path=path))
                    self.assertTrue(any(noticed.values()), "no judge has noticed the mutant")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    trials.add_options(parser)
    parser.add_argument("--mutant-stash", required=True, help="the mutants' library of the stash")
    parser.add_argument("--mutant-stash-on-stand-in", required=True, help="likewise, over the stand-in")
    parser.add_argument("--tiers", nargs="+", default=TIERS, choices=TIERS, help="mutants of these, and of the stash under these")
    parser.add_argument("--only", nargs="*", default=[], help="these mutants")
    parser.add_argument("--tests", nargs="*", default=[], help="of unittest; all by default")
    trials.parse_options(parser)
    unittest.main(argv=[sys.argv[0], *options.tests], verbosity=2)


if __name__ == "__main__":
    main()
