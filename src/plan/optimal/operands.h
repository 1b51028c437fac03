#pragma once
// Computes the memory that ops need while they run, and the ops that must run again to make a value again.

#include <cstdint>
#include <vector>

#include "vdnn/tape.h"

namespace vdnn::optimal {

// The bytes of the op's results, without results that may overwrite a value that the op reads.
double fresh_bytes(const Tape& tape, OpId op);
// The bytes of the values that the op reads, without parameters and other persistent values.
double read_bytes(const Tape& tape, OpId op);

// Suppose that the results of `op`, at most `bytes`, are not on the device while the op of `slot` computes.
// Suppose also that they are later made again instead of fetched. Returns the ops that must then run again
// after `slot`: `op` and its *chain*.
//
// An op q belongs to the chain if p, which is `op` or in the chain, reads a value w that q makes, and if
//   * w is not used at `slot` or later, and has at least `bytes`; and
//   * only p reads the results of q.
//
// Proof: w must be on the device when p runs again. If w was on the device while the op of `slot` computed,
// it occupied the memory that was gained. If w was fetched, that copied at least as many bytes as a fetch of
// the results of `op`. Otherwise q has run again.
//
// If neither of two ops belongs to the chain of the other, their chains have no op in common.
std::vector<OpId> run_again_for(const Tape& tape, OpId op, OpId slot, std::uint64_t bytes);

}  // namespace vdnn::optimal
