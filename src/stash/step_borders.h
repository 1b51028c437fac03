#pragma once
// Where a step ends although some of its tensors are alive.
//
// Most steps end by themselves: backward drops the last handle. A program that keeps a part of a graph across
// steps never comes to that, as one that trains two models in turns, or whose loss has a branch that is never
// read. Its step is what it repeats. Between two steps a program turns from reading to saving, so each such
// turn may be a border:
//
//  * The step has gone like a known kind to that kind's end, and the next tensor is the first one of a kind.
//  * Steps have been found to overlap before, this one goes like no kind, and the next tensor is the first
//  one
//    of a kind that was found so.
//  * The step has repeated itself: its last periods are of the same course, several times in a row, and no
//    fewer tensors are alive after each. The last period is the step. Of its turns the one with the fewest
//    tensors alive is the border.
//
// A loop within a step looks the same until the step ends: inner steps whose graphs an outer pass reads. If
// all handles are dropped after few such borders, they were none: their kinds are forgotten, and more periods
// are asked for than that step had. So a program whose steps end by themselves comes to have no others.
//
// Nothing is decided by time, and results are the same wherever a step ends: tensors of an ended step are
// fetched when they are read.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "src/stash/step_under_way.h"

namespace vdnn::stash {

// Not synchronised.
class StepBorders {
 public:
  // Where the latest of equal periods begins.
  struct Period {
    std::size_t first_tensor = 0;
    std::size_t first_event = 0;
  };

  // The step, whose last event is a read, goes on with a save like no known kind. Its last period, if its
  // periods show that it ends here.
  std::optional<Period> note_turn(const StepUnderWay& step);
  // Another step is under way.
  void restart() { turns_.clear(); }

  void note_border() { ++borders_; }
  // No handle is alive. Whether the borders since the last time were none.
  bool note_empty();

 private:
  static constexpr std::size_t kFewestPeriods = 3;
  static constexpr std::size_t kFewBorders = 16;
  static constexpr std::size_t kMostTurns = 512;  // of a period

  struct Turn {
    std::size_t tensors = 0;  // of the step so far
    std::size_t events = 0;
    std::uint64_t live = 0;
    std::uint64_t course = 0;  // a hash of the events since the turn before
  };

  bool repeats_with(std::size_t turns_of_period) const;

  std::vector<Turn> turns_;
  std::size_t borders_ = 0;  // since all handles had been dropped
  std::size_t periods_ = kFewestPeriods;
};

}  // namespace vdnn::stash
