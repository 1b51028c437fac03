#pragma once
// Collects the faults of a schedule as sentences. Names instructions and buffers for these sentences.

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "vdnn/schedule.h"
#include "vdnn/tape.h"

namespace vdnn::checking {

// The number of an instruction among all checked steps: step * (instructions of a step) + index.
using Position = std::int64_t;
inline constexpr Position kNever = -1;

// An instruction in one of the checked steps.
struct Visit {
  const Instruction& instruction;
  std::uint32_t step = 0;
  Position position = 0;
};

// The tape and the schedule must outlive this object.
class Findings {
 public:
  Findings(const Tape& tape, const Schedule& schedule) : tape_(tape), schedule_(schedule) {}

  // Adds a finding. Only the first 20 findings are kept.
  void add(const std::string& text) {
    if (texts_.size() < kMost) {
      texts_.push_back(text);
    }
  }
  bool empty() const { return texts_.empty(); }
  std::vector<std::string> take() { return std::move(texts_); }

  std::string name(Position position) const;
  std::string name(const Visit& visit) const { return name(visit.position); }
  std::string buffer_name(BufferId buffer) const { return "buffer '" + schedule_.buffers[buffer].name + "'"; }

 private:
  static constexpr std::size_t kMost = 20;

  const Tape& tape_;
  const Schedule& schedule_;
  std::vector<std::string> texts_;
};

}  // namespace vdnn::checking
