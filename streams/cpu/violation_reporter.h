#pragma once
// Says which work was running when the process dies of SIGSEGV, on standard error; for check_accesses.
//
// How a process treats a signal is a property of the process, not of a device. So the handler is installed
// with the first of these objects and removed with the last, and what it reads is the one piece of state of
// this driver that Devices share.

#include <atomic>
#include <cstddef>
#include <string_view>

namespace vdnn {

class ViolationReporter {
 public:
  // Throws DeviceError when there are too many (kMost) in this process.
  ViolationReporter();
  ~ViolationReporter();
  ViolationReporter(const ViolationReporter&) = delete;
  ViolationReporter& operator=(const ViolationReporter&) = delete;

  static constexpr std::size_t kMost = 64;

  // `name` must live until end().
  void begin(std::string_view name);
  void end();

 private:
  // Read by the handler, on whichever thread of the work faults.
  std::atomic<const char*> name_{nullptr};
  std::atomic<std::size_t> name_bytes_{0};
  std::size_t slot_ = 0;

  friend struct ViolationHandler;
};

}  // namespace vdnn
