// Allocation logs (allocator/allocation_log.cpp).

#include <sstream>

#include "fuzz/target.h"
#include "vdnn/allocation_log.h"
#include "vdnn/error.h"

namespace vdnn::fuzz {

namespace {

std::string text_of(const AllocationLog& log) {
  std::ostringstream out;
  write_allocation_log(out, log);
  return out.str();
}

}  // namespace

bool run_allocation_log(Input input) {
  const auto log = attempt<DataError>([&] { return read_allocation_log(to_text(input)); });
  if (!log) {
    return false;
  }
  require(read_allocation_log(text_of(*log)) == *log, "a rewritten log is equal");
  std::uint64_t largest = 0;
  for (const AllocationEvent& event : log->events) {
    largest = event.bytes > largest ? event.bytes : largest;
  }
  require(peak_live_bytes(*log) >= largest, "the peak is at least the largest block");
  return true;
}

std::vector<Seed> allocation_log_seeds() {
  return {{.name = "step",
           .bytes = to_bytes(
               "vdnn-allocation-log 1\np 4096 0\nstep\na 100 0\na 4294967296 3\nu 1 2\nf 1 0\nf 2 3\n")},
          {.name = "program", .bytes = to_bytes("vdnn-allocation-log 1\n# two\na 5 0\na 0 1\nf 0 1\n")}};
}

}  // namespace vdnn::fuzz
