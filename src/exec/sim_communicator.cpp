#include "src/exec/sim_communicator.h"

#include <string>
#include <string_view>

#include "src/exec/collective_accesses.h"
#include "vdnn/error.h"

namespace vdnn {

namespace {

class SimCommunicator final : public Communicator {
 public:
  SimCommunicator(Device& device, const CollectiveCosts& costs) : device_(device), costs_(costs) {}

  int rank() const override { return 0; }
  int size() const override { return static_cast<int>(costs_.ranks()); }

  using Communicator::all_reduce;
  Point all_reduce(StreamId stream, std::span<const Collective> parts) override {
    if (parts.empty()) {
      throw InvalidArgument("a simulated all-reduce needs at least one range");
    }
    return submit(stream, parts.front().name, accesses_of_all_reduce(parts),
                  costs_.all_reduce_seconds(total_bytes(parts)));
  }
  // The time does not depend on the root.
  Point broadcast(StreamId stream, const Collective& collective, int root) override {
    return submit(stream, collective.name, accesses_of_broadcast(collective, root == rank()),
                  costs_.broadcast_seconds(collective.range.bytes));
  }

  void wait(const Frontier& frontier) override { device_.synchronize(frontier); }
  void break_off(const std::string& cause) override {
    throw DeviceError("a simulated collective cannot be broken off: " + cause);
  }
  std::uint64_t library_bytes() const override { return 0; }

 private:
  Point submit(StreamId stream, std::string_view name, const CollectiveAccesses& accesses, double seconds) {
    return device_.submit(stream, {.name = name,
                                   .reads = accesses.reads,
                                   .writes = accesses.writes,
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
