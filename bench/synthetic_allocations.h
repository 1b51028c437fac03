#pragma once
// Programs that nobody trains with, as allocation logs: what is hard for an allocator.

#include <functional>
#include <string>

#include "vdnn/allocation_log.h"

namespace vdnn::bench {

// Calls take(name, log) for each: "synthetic-sizes". The same on every machine.
void each_synthetic_log(const std::function<void(const std::string& name, const AllocationLog& log)>& take);

}  // namespace vdnn::bench
