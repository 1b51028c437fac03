#pragma once
// A device that forwards everything to another one until a call that it was told to fail. Each kind of call
// fails as in a driver: refused at once or, for work and copies, late on the stream.

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "tests/fakes/forwarding_device.h"
#include "vdnn/error.h"

namespace vdnn {

// Counts, in order, the calls that can fail. It outlives the device, whose destructor reports here the memory
// that is still allocated.
struct DeviceFaults {
  std::uint64_t fail_at = 0;  // from 1; 0: nothing fails
  bool armed = false;
  std::atomic<std::uint64_t> points = 0;  // calls counted while armed
  std::string failed;                     // the call that failed

  // Bytes and blocks that were still allocated when the device was destroyed.
  std::uint64_t leaked_device_bytes = 0;
  std::uint64_t leaked_pinned_bytes = 0;
  std::uint64_t leaked_reservations = 0;

  // Returns whether the call that the caller is about to make fails.
  bool strikes(const std::string& what) {
    if (!armed || ++points != fail_at) {
      return false;
    }
    failed = what;
    return true;
  }
};

class FailingDevice final : public ForwardingDevice {
 public:
  FailingDevice(std::unique_ptr<Device> device, DeviceFaults& faults)
      : ForwardingDevice(*device), device_(std::move(device)), faults_(faults) {}

  ~FailingDevice() override {
    const DeviceCounters counters = device_->counters();
    faults_.leaked_device_bytes = counters.committed_bytes;
    faults_.leaked_pinned_bytes = counters.pinned_bytes;
    faults_.leaked_reservations = reservations_;
  }

 protected:
  AddressRange do_reserve(std::uint64_t bytes) override {
    out_of_memory("reserve");
    const AddressRange range = ForwardingDevice::do_reserve(bytes);
    ++reservations_;
    return range;
  }
  void do_unreserve(AddressRange reservation) override {
    ForwardingDevice::do_unreserve(reservation);
    --reservations_;
  }
  void do_commit(AddressRange range) override {
    out_of_memory("commit");
    ForwardingDevice::do_commit(range);
  }
  AddressRange do_allocate_pinned(std::uint64_t bytes) override {
    out_of_memory("page-lock");
    return ForwardingDevice::do_allocate_pinned(bytes);
  }
  void do_create_stream(StreamId stream, const std::string& name) override {
    refuse("create_stream", name);
    ForwardingDevice::do_create_stream(stream, name);
  }
  void do_wait(StreamId stream, Point point) override {
    refuse("wait", stream_name(stream));
    ForwardingDevice::do_wait(stream, point);
  }
  void do_submit(Point point, const Frontier& frontier, const Work& work) override {
    refuse("launch", work.name);
    if (faults_.strikes("launch of " + std::string(work.name) + ", late")) {
      submit_failure(point.stream, work.name);
    } else {
      ForwardingDevice::do_submit(point, frontier, work);
    }
  }
  void do_copy(Point point, const Frontier& frontier, const Copy& copy) override {
    refuse("copy", copy.name);
    if (faults_.strikes("copy " + std::string(copy.name) + ", late")) {
      submit_failure(point.stream, copy.name);
    } else {
      ForwardingDevice::do_copy(point, frontier, copy);
    }
  }

 private:
  void out_of_memory(const std::string& what) {
    if (faults_.strikes(what)) {
      throw OutOfMemory("made to fail: " + what, {});
    }
  }
  void refuse(const std::string& what, std::string_view of) {
    if (faults_.strikes(what + " of " + std::string(of))) {
      throw DeviceError("made to fail: " + faults_.failed);
    }
  }
  void submit_failure(StreamId stream, std::string_view name) {
    const auto fail = [what = faults_.failed](void*) { throw DeviceError("made to fail: " + what); };
    device_->submit(stream, {.name = name, .reads = {}, .writes = {}, .cost = {}, .run = fail});
  }

  std::unique_ptr<Device> device_;
  DeviceFaults& faults_;
  std::uint64_t reservations_ = 0;
};

}  // namespace vdnn
