#pragma once
// Synthetic programs that are hard for an allocator, as allocation logs.

#include <functional>
#include <string>

#include "vdnn/allocation_log.h"

namespace vdnn::bench {

// Calls take(name, log) for each log. A name is, for example, "synthetic-sizes". The logs are the same on
// every machine.
void each_synthetic_log(const std::function<void(const std::string& name, const AllocationLog& log)>& take);

}  // namespace vdnn::bench
