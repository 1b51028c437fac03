#include <algorithm>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "streams/shared_memory.h"
#include "vdnn/device.h"
#include "vdnn/error.h"
#include "vdnn/pool_backend.h"
#include "vdnn/size.h"

namespace vdnn {

namespace {

// Handles are numbers, not pointers to objects. A stream's handle is its number plus 1, so that none is null.
// A granule's handle is its address on the device.
class BackendOfDevice final : public DevicePoolBackend {
 public:
  explicit BackendOfDevice(Device& device)
      : DevicePoolBackend({.name = device.properties().name,
                           .memory_bytes = device.properties().budget_bytes,
                           .granule_bytes = device.properties().granule_bytes,
                           .alignment_bytes = device.properties().alignment_bytes}),
        device_(device),
        memory_(device.reserve(device.properties().budget_bytes)) {
    if (device.properties().touches_memory) {
      bytes_.emplace("vdnn pool", memory_.bytes);
    }
  }
  ~BackendOfDevice() override {
    try {
      device_.unreserve(memory_);
    } catch (...) {
      // Nothing more to do: the device releases granules that were not destroyed.
    }
  }
  BackendOfDevice(const BackendOfDevice&) = delete;
  BackendOfDevice& operator=(const BackendOfDevice&) = delete;

  AddressRange reserve(std::uint64_t bytes) override { return device_.reserve(bytes); }
  void unreserve(AddressRange reservation) override { device_.unreserve(reservation); }

  GranuleHandle create_granule() override {
    const std::lock_guard lock(mutex_);
    if (free_.empty()) {
      if (free_.capacity() <= created_) {
        free_.reserve(2 * created_ + 1);  // for all granules: destroying one cannot fail
      }
      if (created_ == memory_.bytes / granule()) {
        throw OutOfMemory(properties().name,
                          {.asked = granule(), .in_use = memory_.bytes, .budget = properties().memory_bytes});
      }
      free_.push_back(memory_.begin + created_ * granule());
      ++created_;
    }
    device_.commit({.begin = free_.back(), .bytes = granule()});
    const GranuleHandle created = free_.back();
    free_.pop_back();
    return created;
  }
  void destroy_granule(GranuleHandle destroyed) override {
    const std::lock_guard lock(mutex_);
    device_.decommit({.begin = destroyed, .bytes = granule()});
    if (bytes_) {
      bytes_->discard(destroyed - memory_.begin, granule());
    }
    free_.push_back(destroyed);
  }
  void map(AddressRange range, std::span<const GranuleHandle> granules) override {
    const std::lock_guard lock(mutex_);
    std::uint64_t end = range.begin;
    try {
      for (const GranuleHandle each : granules) {
        mapped_.emplace(end, each);
        end += granule();
        if (bytes_) {
          bytes_->map({.begin = end - granule(), .bytes = granule()}, each - memory_.begin);
        }
      }
    } catch (...) {
      unmap_locked({.begin = range.begin, .bytes = end - range.begin});
      throw;
    }
  }
  void unmap(AddressRange range) override {
    const std::lock_guard lock(mutex_);
    unmap_locked(range);
  }
  std::vector<AddressRange> device_ranges(AddressRange range) const override {
    const std::lock_guard lock(mutex_);
    std::vector<AddressRange> ranges;
    for (std::uint64_t at = range.begin; at < range.end();) {
      const std::uint64_t begin = at / granule() * granule();
      const std::uint64_t end = std::min(begin + granule(), range.end());
      if (const auto found = mapped_.find(begin); found != mapped_.end()) {
        ranges.push_back({.begin = found->second + (at - begin), .bytes = end - at});
      }
      at = end;
    }
    return ranges;
  }

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
      throw InvalidArgument(properties().name + ": there is no such stream");
    }
    return static_cast<StreamId>(from_one - 1);
  }
  Frontier frontier_of(EventHandle event) {
    const std::lock_guard lock(mutex_);
    return events_.at(reinterpret_cast<std::uintptr_t>(event));
  }
  std::uint64_t granule() const { return properties().granule_bytes; }
  void unmap_locked(AddressRange range) {
    if (bytes_ && range.bytes > 0) {
      SharedMemory::unmap(range);
    }
    for (std::uint64_t at = range.begin; at < range.end(); at += granule()) {
      mapped_.erase(at);
    }
  }

  Device& device_;
  const AddressRange memory_;          // on the device: where granules are committed
  std::optional<SharedMemory> bytes_;  // the granules' contents, if the device touches memory
  mutable std::mutex mutex_;           // guards the members below
  std::vector<GranuleHandle> free_;
  std::uint64_t created_ = 0;                                // granules in total; each has its own address
  std::unordered_map<std::uint64_t, GranuleHandle> mapped_;  // by address
  std::uintptr_t next_event_ = 1;
  std::unordered_map<std::uintptr_t, Frontier> events_;
};

}  // namespace

std::unique_ptr<DevicePoolBackend> make_pool_backend(Device& device) {
  return std::make_unique<BackendOfDevice>(device);
}

StreamHandle stream_handle(StreamId stream) {
  return reinterpret_cast<StreamHandle>(std::uintptr_t{stream} + 1);  // NOLINT(performance-no-int-to-ptr)
}

}  // namespace vdnn
