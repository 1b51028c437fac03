#pragma once
// Runs pieces of work one at a time. Each can access only those ranges of the arena that it declared.

#include <functional>
#include <mutex>
#include <span>
#include <string_view>

#include "streams/cpu/arena.h"
#include "streams/cpu/violation_reporter.h"
#include "vdnn/device.h"

namespace vdnn {

class AccessCheck {
 public:
  // `arena` must outlive this object.
  explicit AccessCheck(Arena& arena) : arena_(arena) {}

  // Runs `work` and throws what it throws. An undeclared access ends the process.
  void run(std::string_view name, std::span<const Access> reads, std::span<const Access> writes,
           const std::function<void()>& work);

 private:
  Arena& arena_;
  std::mutex mutex_;  // held while work runs: page protection applies to all threads
  ViolationReporter reporter_;
};

}  // namespace vdnn
