#include "streams/cpu/access_check.h"

namespace vdnn {

void AccessCheck::run(std::string_view name, std::span<const Access> reads, std::span<const Access> writes,
                      const std::function<void()>& work) {
  const std::lock_guard lock(mutex_);
  reporter_.begin(name);
  try {
    arena_.restrict_to(reads, writes);
    work();
  } catch (...) {
    reporter_.end();
    arena_.lift_restriction();
    throw;
  }
  reporter_.end();
  arena_.lift_restriction();
}

}  // namespace vdnn
