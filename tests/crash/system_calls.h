#pragma once
// Wraps the system calls on files that code linked into this program makes (the linker's --wrap). The calls
// are recorded, and on request one call fails or ends the process. A process that dies by SIGKILL runs no
// further code. So a file has only as many possible states as there are calls and half-done writes.

#include <cstdint>
#include <string>
#include <vector>

namespace vdnn::testing {

// This process dies before call `number` (from 1); 0: never.
void die_before_call(std::uint64_t number);
// This process dies when write `number` (from 1) has written half of its bytes.
void die_within_write(std::uint64_t number);

// Call `number` (from 1) fails with `error` (an errno) and does nothing, except that close() still closes; 0:
// no call fails.
void fail_call(std::uint64_t number, int error);
std::uint64_t calls_made();
// Before each read, write, fsync and lock, a signal interrupts one attempt (EINTR). No read or write moves
// more than half of its bytes, rounded up. Records the calls that are finally made.
void disturb_calls();
// Looking up a file by its name finds another file, as on some file systems in user space.
void disguise_names();

// Forgets earlier calls.
void record_calls();
// Names of the calls, in order.
const std::vector<std::string>& recorded_calls();

}  // namespace vdnn::testing
