#pragma once
// Checks that a step launches each op, loads each input and copies each result to the host exactly once.

#include <cstdint>
#include <vector>

#include "src/plan/checker/findings.h"
#include "vdnn/schedule.h"
#include "vdnn/tape.h"

namespace vdnn::checking {

// Counts the instructions of one step. The tape must outlive this object.
class StepTally {
 public:
  explicit StepTally(const Tape& tape)
      : tape_(tape),
        launches_(tape.ops().size(), 0),
        loads_(tape.values().size(), 0),
        reads_of_results_(tape.values().size(), 0) {}

  void count(const Instruction& instruction);
  void check(std::uint32_t step, Findings& findings) const;

 private:
  const Tape& tape_;
  std::vector<int> launches_;          // by op
  std::vector<int> loads_;             // by value
  std::vector<int> reads_of_results_;  // by value
};

}  // namespace vdnn::checking
