#pragma once
// The oracle decides whether a schedule computes what its tape means, in every permitted order. It shares no
// code with the checker or with the derivation of waits, and interprets operands on its own. It runs two
// steps of the schedule on symbolic values and compares what every instruction reads with the tape alone.
//
// Memory: a buffer that is not persistent is a different buffer in each step. An allocation makes it live and
// undefined, and a release makes it dead. A persistent buffer keeps its content. If the schedule has
// addresses, an allocation of a buffer or a write to it spoils all buffers that share its bytes. An op whose
// operands overlap without its permission makes garbage; any other op reads before it writes.
//
// Permitted orders: all orders that respect the waits and the order on each stream, across both steps. A
// release is on no stream; it comes after its waits and its allocation. If no wait orders two instructions,
// an error shows when one of them runs as early, or the other as late, as possible. The oracle tries those
// orders and some random ones.
//
// Some schedules are broken by definition, without a run. They name something that does not exist. A wait
// points forward or at a release. An operand is in the other space, or in a buffer too small for it. An op is
// not launched, an input not loaded or a result not read exactly once per step. A place is beyond the arena.
// A buffer that is used is not allocated, or not released, exactly once per step. The oracle does not check
// rules that exist only for drivers; broken_rule_of_drivers() does.

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "vdnn/schedule.h"

namespace vdnn::testing {

enum class Exploration : std::uint8_t {
  kConflicts,  // moves only instructions that share a buffer with an unordered instruction
  kEverything  // moves every instruction
};

// True if all numbers by which executors index are in range, and each launch has the operands of its op.
bool is_well_formed(const Tape& tape, const Schedule& schedule);

// Returns the rule of drivers that a well-formed schedule breaks, independent of its meaning, or an empty
// string. Collectives are in place and on their own stream; all other launches are on the compute stream. A
// launch has a workspace only if its algorithm needs one. The operands of a launch share memory only with the
// op's permission, even if no op reads the result. A persistent value has a whole buffer, and no two live
// buffers overlap in the arena.
std::string broken_rule_of_drivers(const Tape& tape, const Schedule& schedule);

class Oracle {
 public:
  static constexpr std::uint32_t kSteps = 2;
  using Term = std::uint64_t;  // a hash of how a value was computed

  // `intact` determines which buffers contain the persistent values before the first step. `tape` and
  // `intact` must outlive this object.
  Oracle(const Tape& tape, const Schedule& intact);

  // An error in some permitted order, or an empty string if none was found. `seed` draws the random orders.
  // The first orders run the instruction `suspect` early and late, so that errors of this instruction are
  // found sooner. `broken` must have as many buffers as the intact schedule.
  std::string objection(const Schedule& broken, Exploration exploration, std::uint64_t seed = 0,
                        std::uint32_t suspect = 0) const;

 private:
  friend class SymbolicRun;

  void compute_step(std::uint32_t step, std::vector<Term>& values);

  const Tape& tape_;
  std::vector<BufferId> home_;  // for each persistent value, its buffer
  // The meaning of each step of the tape: the symbolic values that each op reads, and each value after its
  // op.
  std::array<std::vector<std::vector<Term>>, kSteps> op_reads_;
  std::array<std::vector<Term>, kSteps> values_;
};

}  // namespace vdnn::testing
