#pragma once
// The fate of each value between the forward and the backward pass, and between its later readers. All
// reports use it.

#include <cstdint>
#include <string>
#include <vector>

#include "vdnn/schedule.h"
#include "vdnn/tape.h"

namespace vdnn {

enum class ValueDecision : std::uint8_t {
  kUndecided,  // nothing to decide: it is persistent, or made after the forward pass
  kDropped,    // freed after the forward pass: no later op reads it
  kKept,       // for the backward pass, or for values recomputed from it
  kOffloaded,  // at least once, whatever else is done with it
  kRecomputed  // for its own readers, or to recompute another value
};
std::string to_string(ValueDecision decision);

bool is_made_in_forward(const Tape& tape, ValueId value);

// By value, derived from the schedule. Unlike the plan, it shows values that are recomputed only for others.
std::vector<ValueDecision> decisions_of(const Tape& tape, const Schedule& schedule);

}  // namespace vdnn
