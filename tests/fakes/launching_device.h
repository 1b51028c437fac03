#pragma once
// A `cuda` device over the fake runtime. Each piece of work is a kernel of the same name that accesses the
// declared ranges and computes nothing.

#include <memory>
#include <utility>

#include "tests/fakes/fake_cuda.h"
#include "tests/fakes/forwarding_device.h"

namespace vdnn::testing {

// As thread-safe as `below`, which is a device over `fake`. Both must outlive this device.
class LaunchingDevice final : public ForwardingDevice {
 public:
  LaunchingDevice(Device& below, std::shared_ptr<FakeCuda> fake)
      : ForwardingDevice(below), fake_(std::move(fake)) {}

 protected:
  void do_submit(Point point, const Frontier&, const Work& work) override {
    Work launch = work;
    launch.run = [&work](void* stream) {
      FakeCuda::launch(stream, [] {}, {.name = work.name, .reads = work.reads, .writes = work.writes});
    };
    below().submit(point.stream, launch);
  }
  void do_copy(Point point, const Frontier& frontier, const Copy& copy) override {
    fake_->name_copies(copy.name);
    ForwardingDevice::do_copy(point, frontier, copy);
  }

 private:
  std::shared_ptr<FakeCuda> fake_;
};

}  // namespace vdnn::testing
