#pragma once
// Costs of algorithms that nobody timed. A library lists its algorithms in the order that it takes to be that
// of their speed, and says nothing of how much faster one is than the next. No figure is published either.
// The assumption, made here and nowhere else: the first reaches the device's rates, and each of the others
// takes 5 % longer than the one before it. So a plan steps down for the sake of workspace alone, and pays for
// it. The 5 % are of arithmetic and bytes, which the rate of an algorithm's own type turns into seconds:
// among algorithms of several types, one of the faster type can cost less than one of the slower type that
// the library lists before it.

#include <algorithm>

#include "vdnn/cost.h"

namespace vdnn {

inline constexpr double kSlowdownFromOneToTheNext = 1.05;

// `factor` times as slow, on every device.
inline Cost times(Cost cost, double factor) {
  cost.flops *= factor;
  cost.bytes *= factor;
  cost.seconds *= factor;
  return cost;
}

// Of an algorithm that follows one of this cost.
inline Cost cost_of_next(const Cost& cost) {
  return times(cost, kSlowdownFromOneToTheNext);
}

// No device takes less for it than for either. Both are of the same kind of arithmetic.
inline Cost slower_of(Cost a, const Cost& b) {
  a.flops = std::max(a.flops, b.flops);
  a.bytes = std::max(a.bytes, b.bytes);
  a.seconds = std::max(a.seconds, b.seconds);
  return a;
}

}  // namespace vdnn
