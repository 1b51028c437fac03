#pragma once
// Recomputation: an op of the forward pass is launched once more in the step, so that a value whose memory
// was given back is on the device again.
//
// To have values before op `with`, their producers are launched again in the tape's order. If an operand of a
// producer is not there, its own producer is launched again too, and so on. All of these launches run the
// algorithm of the first launch, so they make the same bits.
//
// Each value that these launches make is of one of three kinds:
//   * staying: it was asked for and has a use from `with` on, so it keeps its memory;
//   * passing: only the launches before `with` need it. Its memory is given back after the last of them that
//     reads it, or at once if none does;
//   * unused: the value is there or on the host already. The launch writes a copy that is released at once.
//
// A write may overwrite a read as in the first launch (overwrite.h). The read is gone afterwards.
//
// Recomputation in vdnn/plan.h specifies the recomputations that a plan may have. Schedules
// (layer_wise_schedule.cpp) and the model of `optimal` (optimal/step_model.h) follow the rules above.

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <span>
#include <vector>

#include "vdnn/tape.h"

namespace vdnn {

// Whether the op may be launched more than once per step, with the same results. It must belong to the
// forward pass, change nothing that outlives the step, involve no other rank, and not belong to a foreign
// program.
bool may_run_again(const Tape& tape, OpId id);

// A second launch of an op: its reads and the values that it makes.
struct Relaunch {
  bool possible = false;       // may_run_again()
  std::vector<ValueId> reads;  // those that are not persistent
  struct Made {
    ValueId value = kNone;
    ValueId overwrites = kNone;  // the read that it overwrites
  };
  std::vector<Made> makes;  // in the order of Op::writes
};
// The relaunch of each op of the tape.
std::vector<Relaunch> relaunches_of(const Tape& tape);

// Finds the ops that must be launched again for values. It keeps its storage from run to run, since the
// search of `optimal` needs thousands of runs. Belongs to one thread; the tape and its relaunches outlive it.
class RelaunchSearch {
 public:
  RelaunchSearch(const Tape& tape, std::span<const Relaunch> relaunches)
      : tape_(tape),
        relaunches_(relaunches),
        found_in_(tape.ops().size(), 0),
        last_readers_(tape.values().size(), kNone) {}

  // Calls `may_make(value)` for each value that must be made, once for each op that needs it. If that returns
  // false, or the producer cannot run again, run() stops and returns false. `is_there(value)` returns whether
  // an operand that is not persistent needs no launch.
  template <class MayMake, class IsThere>
  bool run(std::span<const ValueId> values, const MayMake& may_make, const IsThere& is_there) {
    clear();
    missing_.assign(values.begin(), values.end());
    while (!missing_.empty()) {
      const ValueId value = missing_.back();
      missing_.pop_back();
      const OpId producer = tape_.producer(value);
      if (!may_make(value) || producer == kNone || !relaunches_[producer].possible) {
        return false;
      }
      if (!launches(producer)) {
        found_in_[producer] = run_;
        ops_.push_back(producer);
        std::ranges::remove_copy_if(relaunches_[producer].reads, std::back_inserter(missing_), is_there);
      }
    }
    find_last_readers();
    return true;
  }

  // The ops to launch, in the tape's order. These functions describe the last run, which must have returned
  // true.
  std::span<const OpId> ops() const { return ops_; }
  bool launches(OpId op) const { return found_in_[op] == run_; }
  // The last of ops() that reads the value; kNone if none does.
  OpId last_reader(ValueId value) const { return last_readers_[value]; }

 private:
  void clear();
  void find_last_readers();

  const Tape& tape_;
  std::span<const Relaunch> relaunches_;
  std::uint32_t run_ = 0;
  std::vector<std::uint32_t> found_in_;  // by op: the last run that found it
  std::vector<OpId> ops_;
  std::vector<OpId> last_readers_;  // by value
  std::vector<ValueId> missing_;
};

}  // namespace vdnn
