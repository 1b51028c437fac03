#pragma once
// A simulated device with round figures, so that timelines can be computed by hand, and short ways to submit
// to it.

#include <array>
#include <memory>
#include <string_view>
#include <vector>

#include "vdnn/sim_device.h"

namespace vdnn {

// Per second 1 flop, 1 byte of device memory, 10 bytes to the host and 20 bytes from the host; launches are
// free.
inline SimProfile round_profile() {
  return {.name = "round",
          .memory_bytes = 1 << 24,
          .host_memory_bytes = 1 << 24,
          .granule_bytes = 1 << 12,
          .alignment_bytes = 256,
          .flops_per_second = {.convolution = 1, .matrix_product = 1, .other = 1},
          .bytes_per_second = 1,
          .link_bytes_per_second = {.device_to_host = 10, .host_to_device = 20},
          .link_bytes_per_second_both_ways = {.device_to_host = 10, .host_to_device = 20},
          .launch_seconds = 0,
          .source = "tests"};
}

inline SimDeviceOptions round_options() {
  SimDeviceOptions options;
  options.profile = round_profile();
  return options;
}

// A device with two streams, a committed piece of device memory and a page-locked block.
struct SimFixture {
  static constexpr std::uint64_t kBytes = 1 << 16;

  explicit SimFixture(const SimDeviceOptions& options) : device(make_sim_device(options)) {
    compute = device->create_stream("compute");
    memory = device->create_stream("memory");
    block = device->reserve(kBytes);
    device->commit(block);
    pinned = device->allocate_pinned(kBytes);
  }

  AddressRange on_device(std::uint64_t begin, std::uint64_t bytes) const {
    return {.begin = block.begin + begin, .bytes = bytes};
  }
  AddressRange on_host(std::uint64_t begin, std::uint64_t bytes) const {
    return {.begin = pinned.begin + begin, .bytes = bytes};
  }

  Point work(StreamId stream, std::string_view name, std::vector<Access> reads, std::vector<Access> writes) {
    return device->submit(stream, {.name = name, .reads = reads, .writes = writes, .cost = {}, .run = {}});
  }
  // Work that takes `seconds` and touches nothing.
  Point busy(StreamId stream, double seconds, std::string_view name = "busy") {
    return device->submit(stream,
                          {.name = name, .reads = {}, .writes = {}, .cost = {.flops = seconds}, .run = {}});
  }
  Point offload(StreamId stream, std::string_view name, Access from, Access to) {
    return device->copy(
        stream, {.name = name, .direction = CopyDirection::kDeviceToHost, .destination = to, .source = from});
  }
  Point prefetch(StreamId stream, std::string_view name, Access from, Access to) {
    return device->copy(
        stream, {.name = name, .direction = CopyDirection::kHostToDevice, .destination = to, .source = from});
  }

  std::unique_ptr<SimDevice> device;
  StreamId compute = 0;
  StreamId memory = 0;
  AddressRange block;
  AddressRange pinned;
};

}  // namespace vdnn
