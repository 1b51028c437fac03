#pragma once
// The system calls that read and write files, made by what is linked into this program (the linker's --wrap):
// written down, and, on request, failing or the end of the process. A process that dies by SIGKILL runs
// nothing more of its own, whatever the moment; so a file may be found in as many states as there are calls,
// and in those where a write was done by half.

#include <cstdint>
#include <string>
#include <vector>

namespace vdnn::testing {

// From 1: this process dies before its call of that number is made; 0: never.
void die_before_call(std::uint64_t number);
// From 1: this process dies when its write of that number has written half of its bytes.
void die_within_write(std::uint64_t number);

// From 1: the call of that number fails with `error` (an errno) and does nothing, but for close(), which
// closes all the same; 0: none does.
void fail_call(std::uint64_t number, int error);
std::uint64_t calls_made();
// Each read, write, fsync and lock is interrupted by a signal (EINTR) once before it is made, and no read or
// write moves more than half of what it is asked to, rounded up. Records what
// is made after all.
void disturb_calls();
// Files seem to be others when they are looked at by their names, as on some file systems of user space.
void disguise_names();

// Forgets what was called before.
void record_calls();
// Names, in order.
const std::vector<std::string>& recorded_calls();

}  // namespace vdnn::testing
