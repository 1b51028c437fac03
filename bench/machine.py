"""What machine a benchmark runs on, and how busy it is."""

import os
import pathlib
import re
import resource
import time

QUIET_SHARE = 0.05  # of the processors, for other programs


def machine():
    """What kind of machine this is, without its name: "amd-epyc-2-cores"."""
    match = re.search(r"^model name\s*:\s*(.*)$", pathlib.Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    kind = re.sub(r"[^a-z0-9]+", "-", match.group(1).lower()).strip("-") if match else os.uname().machine
    return f"{kind}-{len(os.sched_getaffinity(0))}-cores"


class Load:
    """How busy the processors are, with this script's programs and with all others."""

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
