#pragma once
// A device for tests of the layers above it. Addresses are numbers, work completes when it is submitted, and
// calls that reach the driver are recorded. Hooks make calls fail, or act while a call runs.

#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "vdnn/device.h"
#include "vdnn/size.h"

namespace vdnn {

class FakeDevice : public Device {
 public:
  // One call that reached the driver.
  struct Event {
    enum class Kind : std::uint8_t { kWait, kProtect, kAllow, kSynchronize, kFreePinned };
    Kind kind = Kind::kWait;
    StreamId stream = 0;  // the stream that waits, or in whose order the call is
    Point point;          // the point for which the stream waits
    AddressRange range;   // protected, allowed or freed
    friend bool operator==(const Event&, const Event&) = default;
  };

  static DeviceProperties small_properties() {
    return {.name = "fake",
            .memory_bytes = 1 << 20,
            .budget_bytes = 1 << 20,
            .host_budget_bytes = 1 << 20,
            .granule_bytes = 4096,
            .alignment_bytes = 64,
            .touches_memory = false};
  }

  explicit FakeDevice(DeviceProperties properties = small_properties()) : Device(std::move(properties)) {}

  // If set, these functions are called in place of the driver's part. They may throw.
  std::function<void(AddressRange)> on_commit;
  std::function<void(std::uint64_t)> on_allocate_pinned;
  std::function<void(StreamId, Point)> on_wait;
  std::function<void(const Frontier&)> on_synchronize;
  // Why protect() is refused; empty if it is supported.
  std::string no_protection;

  std::vector<Event> take_events() {
    const std::lock_guard lock(fake_mutex_);
    return std::exchange(events_, {});
  }
  std::size_t reservations() const { return reservations_; }

  double now_seconds() const override { return 0; }
  StreamTimes times(StreamId) const override { return {}; }
  std::string why_not_protect() const override { return no_protection; }

 protected:
  AddressRange do_reserve(std::uint64_t bytes) override {
    const std::lock_guard lock(fake_mutex_);
    ++reservations_;
    return take(round_up(bytes, properties().granule_bytes));
  }
  void do_unreserve(AddressRange) override {
    const std::lock_guard lock(fake_mutex_);
    --reservations_;
  }
  bool do_reached(const Frontier&) override { return true; }
  void do_commit(AddressRange range) override { call(on_commit, range); }
  void do_decommit(AddressRange) override {}
  AddressRange do_allocate_pinned(std::uint64_t bytes) override {
    call(on_allocate_pinned, bytes);
    const std::lock_guard lock(fake_mutex_);
    return take(bytes);
  }
  void do_free_pinned(AddressRange range) override {
    record_event({.kind = Event::Kind::kFreePinned, .point = {}, .range = range});
  }
  void do_create_stream(StreamId, const std::string&) override {}
  void do_wait(StreamId stream, Point point) override {
    record_event({.kind = Event::Kind::kWait, .stream = stream, .point = point, .range = {}});
    call(on_wait, stream, point);
  }
  void do_submit(Point, const Frontier&, const Work&) override {}
  void do_copy(Point, const Frontier&, const Copy&) override {}
  void do_synchronize(const Frontier& frontier) override {
    record_event({.kind = Event::Kind::kSynchronize, .point = {}, .range = {}});
    call(on_synchronize, frontier);
  }
  void do_sample_counter(StreamId, std::string_view, std::uint64_t) override {}
  void do_protect(Point point, const Frontier&, AddressRange range, Protection protection) override {
    record_event({.kind = protection == Protection::kAccessible ? Event::Kind::kAllow : Event::Kind::kProtect,
                  .stream = point.stream,
                  .point = {},
                  .range = range});
  }

 private:
  template <class Hook, class... Arguments>
  static void call(const Hook& hook, const Arguments&... arguments) {
    if (hook) {
      hook(arguments...);
    }
  }

  void record_event(const Event& event) {
    const std::lock_guard lock(fake_mutex_);
    events_.push_back(event);
  }

  // Leaves a gap after every piece, so that no two pieces are adjacent.
  AddressRange take(std::uint64_t bytes) {
    const AddressRange range{.begin = next_, .bytes = bytes};
    next_ += round_up(bytes, kStep) + kStep;
    return range;
  }

  static constexpr std::uint64_t kStep = std::uint64_t{1} << 24;

  mutable std::mutex fake_mutex_;  // guards all members below
  std::uint64_t next_ = kStep;
  std::size_t reservations_ = 0;
  std::vector<Event> events_;
};

}  // namespace vdnn
