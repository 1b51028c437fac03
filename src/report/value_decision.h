#pragma once
// What becomes of each value between the forward pass and the backward pass, and between its later readers:
// what all reports say of it.

#include <cstdint>
#include <string>
#include <vector>

#include "vdnn/schedule.h"
#include "vdnn/tape.h"

namespace vdnn {

enum class ValueDecision : std::uint8_t {
  kUndecided,  // no matter: it is persistent, or made after the forward pass
  kDropped,    // after the forward pass: nobody reads it later
  kKept,       // for the backward pass, or for what is made again from it
  kOffloaded,  // at least once, whatever else becomes of it
  kRecomputed  // for itself, or on the way to another value
};
std::string to_string(ValueDecision decision);

bool is_made_in_forward(const Tape& tape, ValueId value);

// A value: by what the schedule does, which is also what no plan says: values that are made again only for
// others.
std::vector<ValueDecision> decisions_of(const Tape& tape, const Schedule& schedule);

}  // namespace vdnn
