#pragma once
// A simulated device on which one piece of work is late. The random order of `sim` picks each ready stream
// with the same probability, which next to never lets one fall behind the others by dozens of operations, and
// some defects show only then. Here the work of a given name waits, whenever it is submitted, for a stream of
// its own that has many empty pieces of work to do; two real accesses are never ordered by that.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "vdnn/sim_device.h"

namespace vdnn::testing {

// Not synchronised. `sim` must outlive it.
class HeldBackDevice final : public Device {
 public:
  HeldBackDevice(SimDevice& sim, std::string late_work, std::size_t pieces)
      : Device(sim.properties()), sim_(sim), late_work_(std::move(late_work)), pieces_(pieces) {}

  AddressRange reserve(std::uint64_t bytes) override { return sim_.reserve(bytes); }
  void unreserve(AddressRange reservation) override { sim_.unreserve(reservation); }
  bool reached(const Frontier& frontier) override { return sim_.reached(frontier); }
  double now_seconds() const override { return sim_.now_seconds(); }
  StreamTimes times(StreamId stream) const override { return sim_.times(stream); }

 protected:
  void do_commit(AddressRange range) override { sim_.commit(range); }
  void do_decommit(AddressRange range) override { sim_.decommit(range); }
  AddressRange do_allocate_pinned(std::uint64_t bytes) override { return sim_.allocate_pinned(bytes); }
  void do_free_pinned(AddressRange range) override { sim_.free_pinned(range); }
  // The stream of the empty work comes after those that this device's user knows, which keep their numbers.
  void do_create_stream(StreamId, const std::string& name) override { sim_.create_stream(name); }
  void do_wait(StreamId stream, Point point) override { sim_.wait(stream, Frontier(point)); }
  void do_submit(Point point, const Frontier&, const Work& work) override {
    hold_back(point.stream, work.name);
    sim_.submit(point.stream, work);
  }
  void do_copy(Point point, const Frontier&, const Copy& copy) override {
    hold_back(point.stream, copy.name);
    sim_.copy(point.stream, copy);
  }
  void do_synchronize(const Frontier& frontier) override { sim_.synchronize(frontier); }
  void do_mark(StreamId stream, std::string_view counter, std::uint64_t value) override {
    sim_.mark(stream, counter, value);
  }

 private:
  void hold_back(StreamId stream, std::string_view name) {
    if (name != late_work_) {
      return;
    }
    if (!ballast_) {
      ballast_ = sim_.create_stream("ballast");
    }
    for (std::size_t piece = 0; piece < pieces_; ++piece) {
      sim_.submit(*ballast_, {.name = "ballast", .reads = {}, .writes = {}, .cost = {}, .run = {}});
    }
    sim_.wait(stream, sim_.frontier(*ballast_));
  }

  SimDevice& sim_;
  const std::string late_work_;
  const std::size_t pieces_;
  std::optional<StreamId> ballast_;
};

}  // namespace vdnn::testing
