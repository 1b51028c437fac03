#pragma once
// A device that passes everything on to another one, until a call that it is told to fail: each kind of call
// as the driver below could fail it, refused at once or, for work and copies, late on the stream.

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "vdnn/device.h"
#include "vdnn/error.h"

namespace vdnn {

// What can fail is counted in the order of the calls; outlives its device, and is told there what was left
// behind.
struct DeviceFaults {
  std::uint64_t fail_at = 0;  // from 1; 0: nothing fails
  bool armed = false;
  std::atomic<std::uint64_t> points = 0;  // while armed
  std::string failed;                     // what did

  // Of the device that died: bytes and blocks that nobody had given back.
  std::uint64_t leaked_device_bytes = 0;
  std::uint64_t leaked_pinned_bytes = 0;
  std::uint64_t leaked_reservations = 0;

  // Whether the point that the caller is at fails.
  bool strikes(const std::string& what) {
    if (!armed || ++points != fail_at) {
      return false;
    }
    failed = what;
    return true;
  }
};

class FailingDevice final : public Device {
 public:
  FailingDevice(std::unique_ptr<Device> device, DeviceFaults& faults)
      : Device(device->properties()), device_(std::move(device)), faults_(faults) {}

  ~FailingDevice() override {
    const DeviceCounters counters = device_->counters();
    faults_.leaked_device_bytes = counters.committed_bytes;
    faults_.leaked_pinned_bytes = counters.pinned_bytes;
    faults_.leaked_reservations = reservations_;
  }

  AddressRange reserve(std::uint64_t bytes) override {
    out_of_memory("reserve");
    const AddressRange range = device_->reserve(bytes);
    ++reservations_;
    return range;
  }
  void unreserve(AddressRange reservation) override {
    device_->unreserve(reservation);
    --reservations_;
  }
  bool reached(const Frontier& frontier) override { return device_->reached(frontier); }
  double now_seconds() const override { return device_->now_seconds(); }
  StreamTimes times(StreamId stream) const override { return device_->times(stream); }
  std::string why_not_protect() const override { return device_->why_not_protect(); }

 protected:
  void do_commit(AddressRange range) override {
    out_of_memory("commit");
    device_->commit(range);
  }
  void do_decommit(AddressRange range) override { device_->decommit(range); }
  AddressRange do_allocate_pinned(std::uint64_t bytes) override {
    out_of_memory("page-lock");
    return device_->allocate_pinned(bytes);
  }
  void do_free_pinned(AddressRange range) override { device_->free_pinned(range); }
  void do_create_stream(StreamId, const std::string& name) override {
    refuse("create_stream", name);
    device_->create_stream(name);
  }
  void do_wait(StreamId stream, Point point) override {
    refuse("wait", device_->stream_name(stream));
    device_->wait(stream, Frontier(point));
  }
  void do_submit(Point point, const Frontier&, const Work& work) override {
    refuse("launch", work.name);
    if (faults_.strikes("launch of " + std::string(work.name) + ", late")) {
      submit_failure(point.stream, work.name);
    } else {
      device_->submit(point.stream, work);
    }
  }
  void do_copy(Point point, const Frontier&, const Copy& copy) override {
    refuse("copy", copy.name);
    if (faults_.strikes("copy " + std::string(copy.name) + ", late")) {
      submit_failure(point.stream, copy.name);
    } else {
      device_->copy(point.stream, copy);
    }
  }
  void do_synchronize(const Frontier& frontier) override { device_->synchronize(frontier); }
  void do_recover() override { device_->recover(); }
  void do_mark(StreamId stream, std::string_view counter, std::uint64_t value) override {
    device_->mark(stream, counter, value);
  }
  void do_protect(Point point, const Frontier&, AddressRange range, Protection protection) override {
    refuse("protect", device_->stream_name(point.stream));
    device_->protect(point.stream, range, protection);
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
    device_->submit(
        stream, {.name = name, .reads = {}, .writes = {}, .cost = {}, .run = [what = faults_.failed](void*) {
                   throw DeviceError("made to fail: " + what);
                 }});
  }

  std::unique_ptr<Device> device_;
  DeviceFaults& faults_;
  std::uint64_t reservations_ = 0;
};

}  // namespace vdnn
