#include "src/plan/checker/findings.h"

namespace vdnn::checking {

std::string Findings::name(Position position) const {
  if (position == kNever) {
    return "the start";
  }
  const auto count = static_cast<Position>(schedule_.instructions.size());
  const Instruction& instruction = schedule_.instructions[static_cast<std::size_t>(position % count)];
  return "instruction " + std::to_string(position % count) + " (" + describe(tape_, instruction) + ", step " +
         std::to_string(position / count) + ")";
}

}  // namespace vdnn::checking
