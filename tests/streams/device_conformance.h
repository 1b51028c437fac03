#pragma once
// The contract of every driver. A test program instantiates the suite for its driver and links the objects of
// vdnn_device_suite (CMakeLists.txt):
//
//   INSTANTIATE_TEST_SUITE_P(Cpu, DeviceConformance, testing::Values(DeviceFactory{...}), device_name);
//
// The suite observes order through traces, which every driver records with real or virtual times. If a device
// does not support a case, the suite skips it with the reason. The case fails if the device supports it after
// all.

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
  // Runs `body` when the native stream reaches this submission. Empty if the driver calls Work::run only when
  // the stream reaches the submission.
  std::function<void(void* native_stream, std::function<void()> body)> launch = {};
  // Copies bytes when the native stream reaches this submission. One side is device memory; the other is
  // ordinary memory, which must exist until then. Empty if a `body` can copy on the host.
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
  static constexpr std::uint64_t kGranules = 4;  // in the budget
  // Suffices for the large granules of GPUs.
  static constexpr std::uint64_t kHostBudget = 10'000'000;

  DeviceConformance();

  // Returns the reason why work does not run and copies move nothing; empty if they do. Fails the test if
  // they do in spite of a reason.
  std::string why_not_run() const;

  // A Work::run that runs `body`, which accesses no device memory.
  static std::function<void(void*)> on_device(std::function<void()> body);
  Point work(StreamId stream, std::string_view name, std::function<void()> run = {});
  // Submits work that writes `contents` into the range, and nothing if they are empty. The contents must
  // exist until the work has run.
  Point write(StreamId stream, std::string_view name, AddressRange range,
              std::span<const std::uint8_t> contents = {});
  // Work that reads the range into `into`.
  Point read(StreamId stream, std::string_view name, AddressRange range, std::span<std::uint8_t> into);
  Point copy(StreamId stream, std::string_view name, CopyDirection direction, AddressRange destination,
             AddressRange source);
  // Reserves and commits `granules`.
  AddressRange committed(std::uint64_t granules) const;
  // The recorded bars of work and copies.
  std::vector<TraceEvent> synchronized_work() const;

  std::unique_ptr<Device> device;
  std::uint64_t granule = 0;

 private:
  // A Work::run that copies bytes from or to the device.
  static std::function<void(void*)> moving(void* to, const void* from, std::size_t bytes);
  Point submit(StreamId stream, std::string_view name, std::span<const Access> reads,
               std::span<const Access> writes, std::function<void(void*)> run);
};

}  // namespace vdnn
