#include "allocator/last_use.h"

#include <string>

#include "vdnn/error.h"

namespace vdnn {

void check_last_use(const Device& device, const Frontier& last_use) {
  for (const Point& point : last_use.points()) {
    if (!device.frontier(point.stream).dominates(point)) {
      throw InvalidArgument("a block cannot be freed after submission " + std::to_string(point.count) +
                            " of stream '" + device.stream_name(point.stream) +
                            "': it has not been submitted yet");
    }
  }
}

}  // namespace vdnn
