#pragma once
// The contract of every driver. A test program instantiates the suite for its driver and compiles
// device_conformance.cpp:
//
//   INSTANTIATE_TEST_SUITE_P(Cpu, DeviceConformance, testing::Values(DeviceFactory{...}), device_name);
//
// Order is observed through traces, which every driver records, with real or virtual times. A case that a
// device does not support is skipped with the reason, and fails if the device supports it after all.

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <ostream>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "vdnn/device.h"

namespace vdnn {

struct DeviceFactory {
  std::string name;  // letters and digits
  std::function<std::unique_ptr<Device>(std::uint64_t budget_bytes, std::uint64_t host_budget_bytes)> make;
  // Has `body` run when the stream that Work::run was given gets there. Empty: where run() is called the
  // stream has got there.
  std::function<void(void* native_stream, std::function<void()> body)> launch = {};
  // Copies bytes when the stream gets there; one side is memory of the device, the other ordinary memory that
  // stays until then. Empty: the host can do it, as `body`.
  std::function<void(void* native_stream, void* to, const void* from, std::size_t bytes)> move = {};
};

inline std::ostream& operator<<(std::ostream& out, const DeviceFactory& factory) {
  return out << factory.name;
}

inline std::string device_name(const testing::TestParamInfo<DeviceFactory>& info) {
  return info.param.name;
}

class DeviceConformance : public testing::TestWithParam<DeviceFactory> {
 protected:
  static constexpr std::uint64_t kGranules = 4;  // of budget
  // Has room for granules as large as GPUs have them, which it had not: the suite would have failed there.
  static constexpr std::uint64_t kHostBudget = 10'000'000;

  DeviceConformance();

  // Empty, or why work does not run and copies move nothing; fails if they do all the same.
  std::string why_not_run() const;

  // Work::run whose work is `body`, which sees no memory of the device.
  static std::function<void(void*)> on_device(std::function<void()> body);
  Point work(StreamId stream, std::string_view name, std::function<void()> run = {});
  // Work that puts `contents` into the range; they must stay until then. Empty: it puts nothing there.
  Point write(StreamId stream, std::string_view name, AddressRange range,
              std::span<const std::uint8_t> contents = {});
  // The same for work that reads the range.
  Point read(StreamId stream, std::string_view name, AddressRange range, std::span<std::uint8_t> into);
  Point copy(StreamId stream, std::string_view name, CopyDirection direction, AddressRange destination,
             AddressRange source);
  // Reserves `granules` and commits them.
  AddressRange committed(std::uint64_t granules) const;
  // The recorded bars of work and copies.
  std::vector<TraceEvent> synchronized_work() const;

  std::unique_ptr<Device> device;
  std::uint64_t granule = 0;

 private:
  // Work::run that copies bytes from or to the device.
  static std::function<void(void*)> moving(void* to, const void* from, std::size_t bytes);
  Point submit(StreamId stream, std::string_view name, std::span<const Access> reads,
               std::span<const Access> writes, std::function<void(void*)> run);
};

}  // namespace vdnn
