#pragma once
// A device that does nothing: costs measured on it are those of the layers above the drivers.

#include <cstdint>
#include <string>
#include <string_view>

#include "vdnn/device.h"
#include "vdnn/size.h"

namespace vdnn::bench {

class NullDevice : public Device {
 public:
  // Has the memory, granules and alignment of `like`.
  explicit NullDevice(const DeviceProperties& like) : Device(like) {}

  double now_seconds() const override { return 0; }
  StreamTimes times(StreamId) const override { return {}; }

 protected:
  AddressRange do_reserve(std::uint64_t bytes) override { return take(bytes); }
  void do_unreserve(AddressRange) override {}
  bool do_reached(const Frontier&) override { return true; }
  void do_commit(AddressRange) override {}
  void do_decommit(AddressRange) override {}
  AddressRange do_allocate_pinned(std::uint64_t bytes) override { return take(bytes); }
  void do_free_pinned(AddressRange) override {}
  void do_create_stream(StreamId, const std::string&) override {}
  void do_wait(StreamId, Point) override {}
  void do_submit(Point, const Frontier&, const Work&) override {}
  void do_copy(Point, const Frontier&, const Copy&) override {}
  void do_synchronize(const Frontier&) override {}
  void do_sample_counter(StreamId, std::string_view, std::uint64_t) override {}

 private:
  AddressRange take(std::uint64_t bytes) {
    const AddressRange range{.begin = next_, .bytes = bytes};
    next_ += round_up(bytes, properties().granule_bytes);
    return range;
  }

  std::uint64_t next_ = properties().granule_bytes;
};

}  // namespace vdnn::bench
