#pragma once
// Recomputation: an op of the forward pass is launched again in the same step, so that a value whose memory
// was released is on the device again.
//
// To recompute values before op `with`, their producers are launched again in the tape's order. If an operand
// of a producer is not on the device, the operand's producer is launched again too, and so on. Each of these
// launches uses the algorithm of the op's first launch, so it makes the same bits.
//
// Each value that these launches make is of one of three kinds:
//   * staying: the plan recomputes it and it has a use at `with` or later, so it keeps its memory;
//   * passing: only the launches before `with` need it. Its memory is released after the last of these
//     launches that reads it, or at once if none reads it;
//   * unused: it is already on the device or on the host. The launch writes a copy that is released at once.
//
// As in the first launch, a result may overwrite an operand (overwrite.h). Afterwards the operand is no
// longer on the device.
//
// The struct Recomputation in vdnn/plan.h specifies which recomputations a plan may have. Schedules
// (layer_wise_schedule.cpp) and the model of `optimal` (optimal/step_model.h) follow the rules above.

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <span>
#include <vector>

#include "vdnn/tape.h"

namespace vdnn {

// Whether the op can be launched more than once per step, with the same results. It can if it belongs to the
// forward pass, changes nothing that outlives the step, involves no other rank, and is not part of a foreign
// program.
bool may_run_again(const Tape& tape, OpId id);

// A second launch of an op: its reads and the values that it makes.
struct Relaunch {
  bool possible = false;       // the result of may_run_again()
  std::vector<ValueId> reads;  // the reads that are not persistent
  struct Made {
    ValueId value = kNone;
    ValueId overwrites = kNone;  // the operand that the value overwrites, or kNone
  };
  std::vector<Made> makes;  // in the order of Op::writes
};
// The relaunch of each op of the tape.
std::vector<Relaunch> relaunches_of(const Tape& tape);

// Finds the ops that must be launched again to recompute values. It keeps its storage from run to run, since
// the search of `optimal` needs thousands of runs. Use it from one thread. The tape and its relaunches must
// outlive it.
class RelaunchSearch {
 public:
  RelaunchSearch(const Tape& tape, std::span<const Relaunch> relaunches)
      : tape_(tape),
        relaunches_(relaunches),
        found_in_(tape.ops().size(), 0),
        last_readers_(tape.values().size(), kNone) {}

  // Calls `may_make(value)` for each value that must be made, once for each op that needs it. If `may_make`
  // returns false or the value's producer cannot run again, run() stops and returns false. `is_there(value)`
  // returns whether an operand that is not persistent can be used without a launch.
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

  // The functions below describe the last run, which must have returned true.
  //
  // The ops to launch, in the tape's order.
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
