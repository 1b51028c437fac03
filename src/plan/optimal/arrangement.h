#pragma once
// A plan with addresses: lowered, placed, and where places are scarce, what is resident without need may have
// to give way: what has been copied to the host stays only until others take its place, and what is fetched
// comes no sooner than its place is free.

#include <array>
#include <cstdint>

#include "src/plan/optimal/problem.h"
#include "vdnn/plan.h"
#include "vdnn/schedule.h"

namespace vdnn::optimal {

enum class GiveWay : std::uint8_t {
  kNothing,
  kQueues,  // what waits for the link: each copy keeps the time that it takes on a link that is free
  kAll      // copies may hold up the ops
};
inline constexpr std::array kWaysToGive{GiveWay::kNothing, GiveWay::kQueues, GiveWay::kAll};

// `goal`: for what is not persistent, in bytes; taken more only where no better addresses are found. What
// gives way changes the transfers of `plan`.
Schedule arrange(const Problem& problem, Plan& plan, std::uint64_t goal, GiveWay give_way);

}  // namespace vdnn::optimal
