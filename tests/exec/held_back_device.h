#pragma once
// A simulated device on which one piece of work is late. The random order of `sim` picks each ready stream
// with the same probability, so a stream hardly ever lags by dozens of operations. Some defects appear only
// if a stream lags so far. Here each piece of work with a given name waits for a separate stream with many
// empty pieces of work. This orders no two real accesses.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "tests/fakes/forwarding_device.h"

namespace vdnn::testing {

// Call the functions from one thread at a time. `sim` must outlive this device.
class HeldBackDevice final : public ForwardingDevice {
 public:
  HeldBackDevice(Device& sim, std::string late_work, std::size_t pieces)
      : ForwardingDevice(sim), late_work_(std::move(late_work)), pieces_(pieces) {}

 protected:
  void do_submit(Point point, const Frontier& frontier, const Work& work) override {
    hold_back(point.stream, work.name);
    ForwardingDevice::do_submit(point, frontier, work);
  }
  void do_copy(Point point, const Frontier& frontier, const Copy& copy) override {
    hold_back(point.stream, copy.name);
    ForwardingDevice::do_copy(point, frontier, copy);
  }

 private:
  void hold_back(StreamId stream, std::string_view name) {
    if (name != late_work_) {
      return;
    }
    // The stream is created after all streams of this device's user, so that those keep their numbers.
    if (!ballast_) {
      ballast_ = below().create_stream("ballast");
    }
    for (std::size_t piece = 0; piece < pieces_; ++piece) {
      below().submit(*ballast_, {.name = "ballast", .reads = {}, .writes = {}, .cost = {}, .run = {}});
    }
    below().wait(stream, below().frontier(*ballast_));
  }

  const std::string late_work_;
  const std::size_t pieces_;
  std::optional<StreamId> ballast_;
};

}  // namespace vdnn::testing
