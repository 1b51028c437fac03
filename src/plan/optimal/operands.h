#pragma once
// The memory that ops need while they compute, and the ops that must run again to make a value again.

#include <cstdint>
#include <vector>

#include "vdnn/tape.h"

namespace vdnn::optimal {

// Bytes of the op's results, without those that may take the place of a value that it reads.
double fresh_bytes(const Tape& tape, OpId op);
// Bytes of the values that the op reads, without parameters and other persistent values.
double read_bytes(const Tape& tape, OpId op);

// If what `op` makes, at most `bytes` of it, is not on the device while `slot` computes, and is made again
// later, not fetched, then these run again after `slot`: `op`, and its *chain*. An op q belongs to the chain
// if p, which does, reads a value w that q makes, w is not used at `slot` or later, has no fewer than
// `bytes`, and p alone reads what q makes. For w has to be there when p runs again. If it was on the device
// while `slot` computed, it took the memory that was won. If it was fetched, no fewer bytes were than for a
// copy of what `op` makes. Otherwise q has run again. The chains of two ops that belong to neither's chain
// have no op in common.
std::vector<OpId> run_again_for(const Tape& tape, OpId op, OpId slot, std::uint64_t bytes);

}  // namespace vdnn::optimal
