"""The machine on which a benchmark runs, and its load."""

import os
import pathlib
import re
import resource
import time

QUIET_SHARE = 0.05  # the most of the processors' time that other programs may use


def machine():
    """The kind of this machine, without its name: "amd-epyc-2-cores"."""
    match = re.search(r"^model name\s*:\s*(.*)$", pathlib.Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    kind = re.sub(r"[^a-z0-9]+", "-", match.group(1).lower()).strip("-") if match else os.uname().machine
    return f"{kind}-{len(os.sched_getaffinity(0))}-cores"


class Load:
    """The load of the processors by this script's programs and by all others."""

    def __init__(self):
        ticks = pathlib.Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
        user, nice, system, _, _, irq, softirq, steal = (int(tick) for tick in ticks[:8])
        self.busy = (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")
        own = resource.getrusage(resource.RUSAGE_CHILDREN)
        self.own = own.ru_utime + own.ru_stime
        self.time = time.monotonic()

    def share_of_others_since(self, before):
        others = self.busy - before.busy - (self.own - before.own)
        return max(0.0, others / ((self.time - before.time) * os.cpu_count()))
