#include "src/dist/host_communicator.h"

#include <exception>
#include <functional>
#include <span>
#include <utility>

#include "src/dist/collective_checks.h"
#include "src/dist/host_collectives.h"
#include "src/exec/collective_accesses.h"
#include "vdnn/error.h"
#include "vdnn/size.h"

namespace vdnn {

namespace {

void check_options(const Device& device, const MpiOptions& options, int size) {
  constexpr std::uint64_t kLeastStagingOfARank = 1024;
  if (device.properties().name != "cpu") {
    throw InvalidArgument("MPI: the device is " + device.properties().name +
                          "; MPI joins only the device cpu");
  }
  if (!(options.wait_seconds > 0)) {
    throw InvalidArgument("MPI: wait_seconds is " + format_seconds(options.wait_seconds) +
                          "; it must be above 0");
  }
  if (size > 1 && options.staging_bytes / static_cast<std::uint64_t>(size) < kLeastStagingOfARank) {
    throw InvalidArgument("MPI: staging_bytes is " + format_size(options.staging_bytes) + " for " +
                          std::to_string(size) + " ranks; each needs " + format_size(kLeastStagingOfARank));
  }
}

Places places_of(std::span<const Collective> parts) {
  Places places;
  places.reserve(parts.size());
  for (const Collective& part : parts) {
    places.emplace_back(pointer_to<std::byte>(part.range.begin), part.range.bytes);
  }
  return places;
}

class HostCommunicator final : public Communicator {
 public:
  HostCommunicator(Device& device, const MpiOptions& options, std::shared_ptr<GroupFacts> group,
                   std::uint32_t channel)
      : device_(device),
        world_(group->transport->world()),
        who_(name_rank(device, world_.rank, world_.size)),
        transport_(group->transport),
        collectives_(std::make_shared<HostCollectives>(who_, options, std::move(group), channel)) {}
  ~HostCommunicator() override;

  int rank() const override { return world_.rank; }
  int size() const override { return world_.size; }
  using Communicator::all_reduce;
  Point all_reduce(StreamId stream, std::span<const Collective> parts) override;
  Point broadcast(StreamId stream, const Collective& collective, int root) override;
  void wait(const Frontier& frontier) override;
  void break_off(const std::string& cause) override { collectives_->end(cause); }
  std::uint64_t library_bytes() const override { return collectives_->staging_bytes(); }

 private:
  // Runs collective `number` on `values`; messages of errors name it as `what`.
  using Body = std::function<void(HostCollectives& collectives, std::uint64_t number, const std::string& what,
                                  const Places& values)>;
  Point submit(StreamId stream, std::span<const Collective> parts, const CollectiveAccesses& accesses,
               const std::string& verb, Body body);
  void finish() noexcept;

  Device& device_;
  const World world_;
  const std::string who_;  // begins each error message
  const std::shared_ptr<Transport> transport_;
  const std::shared_ptr<HostCollectives> collectives_;
  const int exceptions_ = std::uncaught_exceptions();
  std::uint64_t submitted_ = 0;  // number of collectives so far
  Frontier last_;                // after the last collective
};

HostCommunicator::~HostCommunicator() {
  finish();
  collectives_->close();
}

void HostCommunicator::finish() noexcept {
  try {
    if (std::uncaught_exceptions() > exceptions_) {
      break_off("its work was broken off");
    } else {
      wait(last_);  // all earlier collectives are done then
    }
  } catch (const std::exception&) {
    // The failure has been reported to the other ranks, and a destructor cannot throw it.
  }
}

Point HostCommunicator::all_reduce(StreamId stream, std::span<const Collective> parts) {
  check_parts(who_, parts);
  return submit(stream, parts, accesses_of_all_reduce(parts), "all-reduce",
                [type = parts.front().type](HostCollectives& collectives, std::uint64_t number,
                                            const std::string& what, const Places& values) {
                  collectives.all_reduce(number, what, values, type);
                });
}

Point HostCommunicator::broadcast(StreamId stream, const Collective& collective, int root) {
  const std::span parts(&collective, 1);
  check_parts(who_, parts);
  check_root(who_, collective, root, world_.size);
  return submit(stream, parts, accesses_of_broadcast(collective, root == world_.rank), "broadcast",
                [root](HostCollectives& collectives, std::uint64_t number, const std::string& what,
                       const Places& values) { collectives.broadcast(number, what, values, root); });
}

Point HostCommunicator::submit(StreamId stream, std::span<const Collective> parts,
                               const CollectiveAccesses& accesses, const std::string& verb, Body body) {
  collectives_->check();
  // Without this wait, two streams could reach their collectives in another order here than on another rank,
  // and both ranks would wait for ever. The wait costs nothing on the stream of the last collective.
  device_.wait(stream, last_);
  const std::string what =
      verb + " '" + std::string(parts.front().name) + "' of " + format_size(total_bytes(parts));
  const Point point = device_.submit(
      stream, {.name = parts.front().name,
               .reads = accesses.reads,
               .writes = accesses.writes,
               .cost = parts.front().cost,
               .run = [collectives = collectives_, number = submitted_, what, values = places_of(parts),
                       body = std::move(body)](void*) { body(*collectives, number, what, values); }});
  ++submitted_;
  last_ = Frontier(point);
  return point;
}

void HostCommunicator::wait(const Frontier& frontier) {
  check_can_wait(who_, device_, frontier);
  try {
    for (Backoff backoff(*transport_); !device_.reached(frontier); backoff.rest()) {
      collectives_->check();
    }
    collectives_->check();
    device_.synchronize(frontier);
  } catch (...) {
    collectives_->fail(std::current_exception());
  }
}

}  // namespace

std::unique_ptr<Communicator> make_host_communicator(Device& device, const MpiOptions& options,
                                                     std::shared_ptr<GroupFacts> group,
                                                     std::uint32_t channel) {
  check_options(device, options, group->transport->world().size);
  return std::make_unique<HostCommunicator>(device, options, std::move(group), channel);
}

}  // namespace vdnn
