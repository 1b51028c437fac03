#pragma once
// Costs of algorithms that have not been timed. A library lists its algorithms in the order of their expected
// speed. How much faster one algorithm is than the next is neither reported by the library nor published.
// Only this file assumes a figure: the first algorithm reaches the device's rates, and each other algorithm
// takes 5 % longer than the one listed before it. So a plan chooses a later algorithm only because it needs
// less workspace, and the step becomes longer.
//
// The 5 % apply to arithmetic and bytes, which the rates of the algorithm's own type convert to seconds. If a
// list mixes types, an algorithm of a faster type can therefore cost less than an algorithm of a slower type
// that is listed before it.

#include <algorithm>

#include "vdnn/cost.h"

namespace vdnn {

inline constexpr double kSlowdownFromOneToTheNext = 1.05;

// The cost of work that takes `factor` times as long on every device.
inline Cost times(Cost cost, double factor) {
  cost.flops *= factor;
  cost.bytes *= factor;
  cost.seconds *= factor;
  return cost;
}

// The cost of the algorithm that is listed after an algorithm of cost `cost`.
inline Cost cost_of_next(const Cost& cost) {
  return times(cost, kSlowdownFromOneToTheNext);
}

// A cost that on every device is at least `a` and at least `b`. The costs must be of the same kind of
// arithmetic.
inline Cost slower_of(Cost a, const Cost& b) {
  a.flops = std::max(a.flops, b.flops);
  a.bytes = std::max(a.bytes, b.bytes);
  a.seconds = std::max(a.seconds, b.seconds);
  return a;
}

}  // namespace vdnn
