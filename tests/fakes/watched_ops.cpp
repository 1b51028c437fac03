#include "tests/fakes/watched_ops.h"

#include <algorithm>
#include <vector>

#include "tests/fakes/fake_cuda.h"
#include "vdnn/error.h"

namespace vdnn::testing {

namespace {

std::vector<Access> accesses(std::span<const AddressRange> ranges) {
  std::vector<Access> result(ranges.size());
  std::ranges::transform(ranges, result.begin(), [](AddressRange range) { return Access{.range = range}; });
  return result;
}

}  // namespace

void declare_on_fake_cuda(const std::string& op, const OpOperands& operands, void* native_stream) {
  std::vector<Access> reads = accesses(operands.reads);
  if (operands.step_numbers != 0) {
    reads.push_back({.range = {.begin = operands.step_numbers, .bytes = kStepNumbersBytes}});
  }
  std::vector<Access> writes = accesses(operands.writes);
  writes.push_back({.range = operands.workspace});
  const CudaStatus status =
      FakeCuda::launch(native_stream, [] {}, {.name = op, .reads = reads, .writes = writes});
  if (status != CudaStatus::kSuccess) {
    throw DeviceError("op '" + op + "': error " + std::to_string(static_cast<int>(status)));
  }
}

}  // namespace vdnn::testing
