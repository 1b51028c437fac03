#pragma once
// An oracle for schedules: does a schedule compute what its tape means, in every permitted order? It shares
// nothing with the checker or with the deriver of waits: it has its own reading of operands, runs the
// schedule on symbolic values, two steps in a row, and looks at what every instruction reads. The expectation
// comes from the tape alone.
//
// Memory: a buffer that is not persistent is another one in each step. An allocation makes it live and
// undefined, a release makes it dead; a persistent buffer keeps its content. Where the schedule brings
// addresses, to allocate a buffer or to write to it spoils whatever has some of its bytes. An op whose
// operands overlap without its permission makes garbage; otherwise it reads before it writes.
//
// Permitted orders: all that keep the order on each stream, across both steps, and the waits. A release is on
// no stream: it comes after its waits and its allocation. For a pair of instructions that no wait orders,
// some order runs one of them as early, or the other as late, as possible; so those orders are tried, and
// some random ones.
//
// Broken by definition, without being run: a name of something that is not there; a wait that points forward
// or at a release; an operand in the other space, or in a buffer too small for it; an op launched, an input
// loaded or a result read not exactly once a step; a place beyond the arena; a buffer that is used and not
// allocated and released exactly once. No objection are the rules that a schedule keeps for the sake of
// drivers; broken_rule_of_drivers() knows them.

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "vdnn/schedule.h"

namespace vdnn::testing {

enum class Exploration : std::uint8_t {
  kConflicts,  // moves only the instructions that share a buffer with one that they are not ordered with
  kEverything  // moves each
};

// Are all numbers in range, and has each launch operands for its op? What executors index by.
bool is_well_formed(const Tape& tape, const Schedule& schedule);

// The rule of drivers that a well-formed schedule breaks, whatever the schedule means, or an empty string.
// All launches are on the compute stream, except collectives, which are on a stream of their own and in
// place. No launch has a workspace if its algorithm needs none, nor operands in one place without the op's
// permission, even if the result is never read. A persistent value has its whole buffer, and no two buffers
// of the arena overlap at any time.
std::string broken_rule_of_drivers(const Tape& tape, const Schedule& schedule);

class Oracle {
 public:
  static constexpr std::uint32_t kSteps = 2;
  using Term = std::uint64_t;  // a hash of how a value was computed

  // `intact` tells which buffers hold the persistent values before the first step; both must outlive this
  // object.
  Oracle(const Tape& tape, const Schedule& intact);

  // An error in some permitted order, or an empty string if none was found. `seed` draws the random orders.
  // The first orders run the instruction `suspect` early and late, which finds its errors sooner. `broken`
  // has as many buffers as the intact schedule.
  std::string objection(const Schedule& broken, Exploration exploration, std::uint64_t seed = 0,
                        std::uint32_t suspect = 0) const;

 private:
  friend class SymbolicRun;

  void compute_step(std::uint32_t step, std::vector<Term>& values);

  const Tape& tape_;
  std::vector<BufferId> home_;  // a value: its buffer where it is persistent
  // The meaning of one step of the tape: the symbolic value that each op reads, and each value once it is
  // made.
  std::array<std::vector<std::vector<Term>>, kSteps> op_reads_;
  std::array<std::vector<Term>, kSteps> values_;
};

}  // namespace vdnn::testing
