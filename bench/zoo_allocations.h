#pragma once
// The requests to the device pool while each network of the zoo trains under each policy, with the engines
// that cuDNN listed for an H200: the logs in tests/data/traces.

#include <functional>
#include <string>

#include "vdnn/allocation_log.h"

namespace vdnn::bench {

// Calls take(name, log) for each log. A name is, for example, "vgg16-all".
void each_zoo_log(const std::function<void(const std::string& name, const AllocationLog& log)>& take);

}  // namespace vdnn::bench
