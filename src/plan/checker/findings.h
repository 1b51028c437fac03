#pragma once
// The faults of a schedule as sentences, and the names of instructions and buffers in them.

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "vdnn/schedule.h"
#include "vdnn/tape.h"

namespace vdnn::checking {

// Instructions are numbered through the steps that are checked: step * instructions + index.
using Position = std::int64_t;
inline constexpr Position kNever = -1;

// An instruction in one of these steps.
struct Visit {
  const Instruction& instruction;
  std::uint32_t step = 0;
  Position position = 0;
};

// The tape and the schedule outlive it.
class Findings {
 public:
  Findings(const Tape& tape, const Schedule& schedule) : tape_(tape), schedule_(schedule) {}

  // Findings after the first 20 are dropped.
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
