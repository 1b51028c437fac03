#pragma once
// A device on which some waits are submitted to another stream than the one that needs them. This happened in
// a library that used the "current" stream where it was the wrong one (torchtitan#2581). Nothing fails, but
// the wait has no effect.

#include <cstdint>
#include <functional>
#include <optional>
#include <utility>

#include "tests/fakes/forwarding_device.h"

namespace vdnn::testing {

// Call the functions from one thread at a time. `below` must outlive this device.
class MisdirectedWaits final : public ForwardingDevice {
 public:
  // `goes_astray` returns whether this stream's wait for that point is submitted to the wrong stream.
  MisdirectedWaits(Device& below, std::function<bool(StreamId, Point)> goes_astray)
      : ForwardingDevice(below), goes_astray_(std::move(goes_astray)) {}

  std::uint64_t astray() const { return astray_; }

 protected:
  void do_wait(StreamId stream, Point point) override {
    if (!goes_astray_(stream, point)) {
      ForwardingDevice::do_wait(stream, point);
      return;
    }
    ++astray_;
    if (!current_) {
      current_ = below().create_stream("current");
    }
    below().wait(*current_, Frontier(point));
  }

 private:
  const std::function<bool(StreamId, Point)> goes_astray_;
  std::optional<StreamId> current_;  // created after all streams of this device's user
  std::uint64_t astray_ = 0;
};

}  // namespace vdnn::testing
