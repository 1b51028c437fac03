#include "src/dist/collective_checks.h"

#include "vdnn/error.h"
#include "vdnn/size.h"

namespace vdnn {

std::string format_seconds(double seconds) {
  std::string text = std::to_string(seconds);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.') {
    text.pop_back();
  }
  return text + " s";
}

std::string name_rank(const Device& device, int rank, int size) {
  return device.properties().name + ": rank " + std::to_string(rank) + " of " + std::to_string(size);
}

void check_parts(const std::string& who, std::span<const Collective> parts) {
  if (parts.empty()) {
    throw InvalidArgument(who + ": a collective needs at least one range");
  }
  const DataType type = parts.front().type;
  for (const Collective& part : parts) {
    const std::string what = who + ": collective '" + std::string(part.name) + "' of ";
    if (!is_floating(part.type)) {
      throw InvalidArgument(what + to_string(part.type) + "; use fp32, fp16 or bf16");
    }
    if (part.type != type) {
      throw InvalidArgument(what + to_string(type) + " and " + to_string(part.type) +
                            ": all its parts must have one type");
    }
    if (part.range.bytes % size_of(type) != 0) {
      throw InvalidArgument(what + format_size(part.range.bytes) + ", which is not a whole number of " +
                            to_string(type));
    }
  }
}

void check_root(const std::string& who, const Collective& collective, int root, int size) {
  if (root < 0 || root >= size) {
    throw InvalidArgument(who + ": collective '" + std::string(collective.name) + "' from rank " +
                          std::to_string(root) + ", which does not exist");
  }
}

void check_can_wait(const std::string& who, const Device& device, const Frontier& frontier) {
  if (device.capturing()) {
    throw InvalidArgument(who + ": a wait on the thread of a capture that has not ended");
  }
  for (const Point& point : frontier.points()) {
    if (!device.frontier(point.stream).dominates(point)) {
      throw InvalidArgument(who + ": a wait for submission " + std::to_string(point.count) + " of stream '" +
                            device.stream_name(point.stream) + "', which has not been made");
    }
  }
}

}  // namespace vdnn
