#pragma once
// The system calls on files that code linked into this program makes (the linker's --wrap). They are
// recorded, and on request one fails or ends the process. A process that dies by SIGKILL runs no further
// code, whatever the moment. So a file has as many possible states as there are calls, and those of half-done
// writes.

#include <cstdint>
#include <string>
#include <vector>

namespace vdnn::testing {

// From 1: this process dies before its call of that number is made; 0: never.
void die_before_call(std::uint64_t number);
// From 1: this process dies when its write of that number has written half of its bytes.
void die_within_write(std::uint64_t number);

// The call of that number, from 1, fails with `error` (an errno) and does nothing, except close(), which
// still closes; 0: no call fails.
void fail_call(std::uint64_t number, int error);
std::uint64_t calls_made();
// Each read, write, fsync and lock is interrupted by a signal (EINTR) once before it is made, and no read or
// write moves more than half of its bytes, rounded up. Records the calls that are finally made.
void disturb_calls();
// Files seem to be others when they are looked at by their names, as on some file systems of user space.
void disguise_names();

// Forgets earlier calls.
void record_calls();
// Names, in order.
const std::vector<std::string>& recorded_calls();

}  // namespace vdnn::testing
