#pragma once
// Costs of algorithms that nobody timed. A library lists its algorithms in the order of their expected speed,
// but does not report how much faster one is than the next, and no figure is published. The assumption, made
// here and nowhere else, is that the first algorithm reaches the device's rates and each other one takes 5 %
// longer than the one before it. So a plan steps down for workspace alone, and pays for it.
//
// The 5 % apply to arithmetic and bytes, which become seconds by the rates of the algorithm's own type. If a
// list mixes types, an algorithm of a faster type can therefore cost less than one of a slower type listed
// before it.

#include <algorithm>

#include "vdnn/cost.h"

namespace vdnn {

inline constexpr double kSlowdownFromOneToTheNext = 1.05;

// The cost of work that is `factor` times as slow on every device.
inline Cost times(Cost cost, double factor) {
  cost.flops *= factor;
  cost.bytes *= factor;
  cost.seconds *= factor;
  return cost;
}

// The cost of the algorithm listed after one of this cost.
inline Cost cost_of_next(const Cost& cost) {
  return times(cost, kSlowdownFromOneToTheNext);
}

// A cost that on every device is at least that of `a` and that of `b`. Both must be of the same kind of
// arithmetic.
inline Cost slower_of(Cost a, const Cost& b) {
  a.flops = std::max(a.flops, b.flops);
  a.bytes = std::max(a.bytes, b.bytes);
  a.seconds = std::max(a.seconds, b.seconds);
  return a;
}

}  // namespace vdnn
