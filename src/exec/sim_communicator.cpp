#include "src/exec/sim_communicator.h"

#include <string>
#include <vector>

#include "vdnn/error.h"

namespace vdnn {

namespace {

class SimCommunicator final : public Communicator {
 public:
  SimCommunicator(Device& device, const CollectiveCosts& costs) : device_(device), costs_(costs) {}

  int rank() const override { return 0; }
  int size() const override { return static_cast<int>(costs_.ranks()); }

  Point all_reduce(StreamId stream, const Collective& collective, Reduction reduction) override {
    return all_reduce(stream, std::span(&collective, 1), reduction);
  }
  Point all_reduce(StreamId stream, std::span<const Collective> parts, Reduction) override {
    std::uint64_t bytes = 0;
    for (const Collective& part : parts) {
      bytes += part.range.bytes;
    }
    return submit(stream, parts, costs_.all_reduce_seconds(bytes));
  }
  Point broadcast(StreamId stream, const Collective& collective, int) override {
    return submit(stream, std::span(&collective, 1), costs_.broadcast_seconds(collective.range.bytes));
  }

  void wait(const Frontier& frontier) override { device_.synchronize(frontier); }
  void break_off(const std::string& cause) override {
    throw DeviceError("nothing breaks off what is simulated: " + cause);
  }
  std::uint64_t library_bytes() const override { return 0; }

 private:
  Point submit(StreamId stream, std::span<const Collective> parts, double seconds) {
    std::vector<Access> reads;
    std::vector<Access> writes;
    for (const Collective& part : parts) {
      reads.push_back({.range = part.range, .version = part.version_before});
      writes.push_back({.range = part.range, .version = part.version_after});
    }
    return device_.submit(stream, {.name = parts.empty() ? std::string_view() : parts.front().name,
                                   .reads = reads,
                                   .writes = writes,
                                   .cost = {.seconds = seconds},
                                   .run = {}});
  }

  Device& device_;
  CollectiveCosts costs_;
};

}  // namespace

std::unique_ptr<Communicator> make_sim_communicator(Device& device, const CollectiveCosts& costs) {
  return std::make_unique<SimCommunicator>(device, costs);
}

}  // namespace vdnn
