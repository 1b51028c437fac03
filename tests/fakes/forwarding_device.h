#pragma once
// A device that forwards everything to another one. Derived devices do one thing differently, for example to
// plant a defect between the runtime and a driver.

#include <string>
#include <string_view>

#include "vdnn/device.h"

namespace vdnn {

// As thread-safe as `below`, which must outlive it. Streams keep their numbers.
class ForwardingDevice : public Device {
 public:
  explicit ForwardingDevice(Device& below) : Device(below.properties()), below_(below) {}

  double now_seconds() const override { return below_.now_seconds(); }
  StreamTimes times(StreamId stream) const override { return below_.times(stream); }
  std::string why_not_timed() const override { return below_.why_not_timed(); }

 protected:
  AddressRange do_reserve(std::uint64_t bytes) override { return below_.reserve(bytes); }
  void do_unreserve(AddressRange reservation) override { below_.unreserve(reservation); }
  bool do_reached(const Frontier& frontier) override { return below_.reached(frontier); }
  void do_commit(AddressRange range) override { below_.commit(range); }
  void do_decommit(AddressRange range) override { below_.decommit(range); }
  AddressRange do_allocate_pinned(std::uint64_t bytes) override { return below_.allocate_pinned(bytes); }
  void do_free_pinned(AddressRange range) override { below_.free_pinned(range); }
  void do_create_stream(StreamId, const std::string& name) override { below_.create_stream(name); }
  void do_wait(StreamId stream, Point point) override { below_.wait(stream, Frontier(point)); }
  void do_submit(Point point, const Frontier&, const Work& work) override {
    below_.submit(point.stream, work);
  }
  void do_copy(Point point, const Frontier&, const Copy& copy) override { below_.copy(point.stream, copy); }
  void do_synchronize(const Frontier& frontier) override { below_.synchronize(frontier); }
  void do_recover() override { below_.recover(); }
  void do_sample_counter(StreamId stream, std::string_view counter, std::uint64_t value) override {
    below_.sample_counter(stream, counter, value);
  }

  Device& below() { return below_; }

 private:
  Device& below_;
};

}  // namespace vdnn
