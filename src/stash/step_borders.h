#pragma once
// Finds where a step ends although some of its tensors are alive.
//
// Most steps end by themselves: the backward pass drops the last handle. A program that keeps a part of a
// graph across steps never drops the last handle. Examples are a program that trains two models in turns, and
// a program whose loss has a branch that is never read. The step of such a program is the sequence of saves
// and reads that repeats. Between two steps a program turns from reading to saving. Each such turn is a
// border between steps if one of these conditions holds:
//
//  * The step has matched a known kind to that kind's end, and the next tensor is the first one of a kind.
//  * Steps have been found to overlap earlier, this step matches no kind, and the next tensor is the first
//    one of an overlapping kind.
//  * The step has repeated itself: its last periods have the same saves and reads, several times in a row,
//    and no fewer tensors are alive after each period than after the previous one. The last period is the
//    step. The turn with the fewest tensors alive is the border.
//
// A loop within a step, for example inner steps whose graphs an outer pass reads, cannot be distinguished
// from steps until the step ends. If all handles are dropped after few such borders, the borders were wrong.
// Their kinds are forgotten, and from then on more repetitions are required than that step had. So the search
// stops finding borders in a program whose steps end by themselves.
//
// Borders do not depend on time. Results are the same wherever a step ends, since tensors of an ended step
// are fetched when they are read.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "src/stash/step_under_way.h"

namespace vdnn::stash {

// Not synchronised.
class StepBorders {
 public:
  // Where the latest of several equal periods begins.
  struct Period {
    std::size_t first_tensor = 0;
    std::size_t first_event = 0;
  };

  // Call it when a save follows a read and matches no known kind. Returns the last period if the periods show
  // that the step ends here.
  std::optional<Period> note_turn(const StepUnderWay& step);
  // Call it when another step begins.
  void restart() { turns_.clear(); }

  void note_border() { ++borders_; }
  // Call it when no handle is alive. Returns whether the borders since the last such call were wrong.
  bool note_empty();

 private:
  static constexpr std::size_t kFewestPeriods = 3;
  static constexpr std::size_t kFewBorders = 16;
  static constexpr std::size_t kMostTurns = 512;  // in a period

  struct Turn {
    std::size_t tensors = 0;  // number of tensors of the step so far
    std::size_t events = 0;
    std::uint64_t live = 0;
    std::uint64_t course = 0;  // a hash of the events since the previous turn
  };

  bool repeats_with(std::size_t turns_of_period) const;

  std::vector<Turn> turns_;
  std::size_t borders_ = 0;  // since the last time that no handle was alive
  std::size_t periods_ = kFewestPeriods;
};

}  // namespace vdnn::stash
