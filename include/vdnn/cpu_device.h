#pragma once
// The `cpu` driver: trains for real, inside an enforced budget, on a machine without a GPU.
//
// Device memory is an arena of address space in which granules of 64 KiB are made accessible as they are
// committed. commit() fails beyond the budget, even if the machine has more memory. Page-locked host memory
// is ordinary memory, touched when it is allocated. Each stream is a worker thread. There is one copy engine
// for each direction: copies in opposite directions run at the same time, copies in one direction one after
// the other. A wait blocks the worker, never the host.

#include <cstdint>
#include <memory>
#include <optional>

#include "vdnn/device.h"

namespace vdnn {

struct CpuDeviceOptions {
  // Device budget in bytes, rounded down to granules. 0: half of the machine's memory, or of the limit of the
  // process's control group (a container's) if that is less.
  std::uint64_t budget_bytes = 0;
  // Budget for page-locked memory in bytes. 0: the same default as for budget_bytes.
  std::uint64_t host_budget_bytes = 0;
  // Limits each copy engine to this rate in 10^9 bytes per second; at least 1e-6. Absent: the speed of
  // memcpy.
  std::optional<double> link_gbytes_per_second;

  // --- debugging aids, all off by default -----------------------------------------------------------------
  // Random delays (up to a millisecond) before pieces of work, drawn from this seed. They must not change
  // results.
  std::optional<std::uint64_t> delay_seed;
  // Blocks start and end on pages, so that protect() can make released memory inaccessible; see
  // DevicePoolOptions::protect_released.
  bool page_aligned_blocks = false;
  // Catches accesses that work did not declare. Streams are serialised. While a piece of work runs, pages of
  // committed device memory without any of its declared bytes are inaccessible, and pages that it only reads
  // are read-only. A violation names the work on standard error and ends the process with SIGSEGV. An
  // AddressSanitizer build also poisons everything outside the declared bytes, to the byte, for our own
  // (instrumented) kernels. Implies page_aligned_blocks.
  bool check_accesses = false;
};

// Throws InvalidArgument for impossible options, OutOfMemory if the address space cannot be reserved.
std::unique_ptr<Device> make_cpu_device(const CpuDeviceOptions& options);

}  // namespace vdnn
