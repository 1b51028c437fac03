#pragma once
// Which of a step's tensors leave the device, so that what is in use stays within a budget.
//
// The model. At event e of the learned step the caller's tensors take U(e) bytes with nothing away. A tensor
// that leaves is released once more than `flight_bytes` have been saved, itself included. It is away from the
// next event on, or from where the program holds it no longer, until it is read first or dropped, the event
// of the read excluded. What is fetched ahead of its read takes at most `ahead_bytes`, which are reserved
// from the first read on, since a forward pass fetches nothing. So at each event
//
//    U(e) + reserve(e) - (bytes of leaving tensors that are away at e)  <=  budget
//
// and the plan is the set of tensors with the fewest bytes that satisfies it. Bytes are the cost because each
// byte is copied twice, whichever tensor it belongs to. Times do not count: they vary from run to run, and a
// plan that depended on them would, too.
//
// The method. This is a covering problem of intervals with sizes, knapsack cover if all intervals share an
// event, so NP-hard. The largest demand of an event is a lower bound, and in training it is tight: intervals
// are nested around the end of the forward pass. A greedy cover is the start: the event with the largest
// demand, then the tensor that covers it with the least excess, the one that is away longest among equals,
// and in the end what has become redundant is taken out again. Branch and bound improves it, by the largest
// demand that is left, until nothing cheaper can exist or `kMostNodes` nodes have been visited; their number
// does not depend on time, so that a step has one plan. Steps of a few dozen tensors are solved exactly.
//
// If the budget cannot be met, all tensors leave that lessen a demand.

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "src/stash/learned_step.h"

namespace vdnn::stash {

struct StepLimits {
  std::uint64_t budget_bytes = 0;  // 0: all that may leave leaves
  std::uint64_t ahead_bytes = 0;
  std::uint64_t flight_bytes = 0;
};

inline constexpr std::uint64_t kMostNodes = 5'000;

// By tensor.
std::vector<bool> choose_leaving(const StepRecord& step, const StepLimits& limits);

// The most bytes in use in a step of which these tensors leave, by the model above.
std::uint64_t planned_peak(const StepRecord& step, const StepLimits& limits, const std::vector<bool>& leaves);

// By size: how many of the tensors that leave have a block of host memory at once, from save to drop.
std::map<std::uint64_t, std::size_t> host_blocks_of(const StepRecord& step, const std::vector<bool>& leaves);

}  // namespace vdnn::stash
