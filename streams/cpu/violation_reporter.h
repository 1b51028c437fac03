#pragma once
// For the option check_accesses: if SIGSEGV ends the process, reports on standard error which work was
// running.
//
// Signal handlers belong to the process, not to a device. So the first ViolationReporter installs the
// handler, and the last one removes it. Devices of the `cpu` driver share only the state that the handler
// reads.

#include <atomic>
#include <cstddef>
#include <string_view>

namespace vdnn {

class ViolationReporter {
 public:
  // Throws DeviceError if the process has kMost reporters already.
  ViolationReporter();
  ~ViolationReporter();
  ViolationReporter(const ViolationReporter&) = delete;
  ViolationReporter& operator=(const ViolationReporter&) = delete;

  static constexpr std::size_t kMost = 64;

  // `name` must live until end().
  void begin(std::string_view name);
  void end();

 private:
  // The handler reads these members on the thread that faults.
  std::atomic<const char*> name_{nullptr};
  std::atomic<std::size_t> name_bytes_{0};
  std::size_t slot_ = 0;

  friend struct ViolationHandler;
};

}  // namespace vdnn
