#include <mutex>
#include <unordered_map>
#include <utility>

#include "vdnn/device.h"
#include "vdnn/error.h"
#include "vdnn/pool_backend.h"

namespace vdnn {

namespace {

// Handles are addresses of nothing: a stream's is its number from 1 on, so that none is null.
class DevicePoolBackend final : public PoolBackend {
 public:
  explicit DevicePoolBackend(Device& device)
      : PoolBackend({.name = device.properties().name,
                     .memory_bytes = device.properties().budget_bytes,
                     .granule_bytes = device.properties().granule_bytes,
                     .alignment_bytes = device.properties().alignment_bytes}),
        device_(device) {}

  AddressRange reserve(std::uint64_t bytes) override { return device_.reserve(bytes); }
  void unreserve(AddressRange reservation) override { device_.unreserve(reservation); }
  void commit(AddressRange range) override { device_.commit(range); }
  void decommit(AddressRange range) override { device_.decommit(range); }

  std::uint64_t stream_id(StreamHandle stream) override { return number(stream) + std::uint64_t{1}; }
  bool is_capturing(StreamHandle) override { return false; }

  EventHandle record(StreamHandle stream) override {
    Frontier frontier = device_.frontier(number(stream));
    const std::lock_guard lock(mutex_);
    events_.emplace(next_event_, std::move(frontier));
    return reinterpret_cast<EventHandle>(next_event_++);  // NOLINT(performance-no-int-to-ptr)
  }
  void wait(StreamHandle stream, EventHandle event) override {
    device_.wait(number(stream), frontier_of(event));
  }
  bool reached(EventHandle event) override { return device_.reached(frontier_of(event)); }
  void synchronize(EventHandle event) override { device_.synchronize(frontier_of(event)); }
  void synchronize_all() override { device_.synchronize_all(); }
  void release(EventHandle event) noexcept override {
    const std::lock_guard lock(mutex_);
    events_.erase(reinterpret_cast<std::uintptr_t>(event));
  }

 private:
  StreamId number(StreamHandle stream) const {
    const auto from_one = reinterpret_cast<std::uintptr_t>(stream);
    if (from_one == 0 || from_one > device_.stream_count()) {
      throw InvalidArgument(properties().name + ": no such stream");
    }
    return static_cast<StreamId>(from_one - 1);
  }
  Frontier frontier_of(EventHandle event) {
    const std::lock_guard lock(mutex_);
    return events_.at(reinterpret_cast<std::uintptr_t>(event));
  }

  Device& device_;
  std::mutex mutex_;  // guards what follows
  std::uintptr_t next_event_ = 1;
  std::unordered_map<std::uintptr_t, Frontier> events_;
};

}  // namespace

std::unique_ptr<PoolBackend> make_pool_backend(Device& device) {
  return std::make_unique<DevicePoolBackend>(device);
}

StreamHandle stream_handle(StreamId stream) {
  return reinterpret_cast<StreamHandle>(std::uintptr_t{stream} + 1);  // NOLINT(performance-no-int-to-ptr)
}

}  // namespace vdnn
