#pragma once
// Turns a plan into a schedule with addresses. If memory for all addresses is lacking, values that do not
// have to be resident can give way. Then a value that has been copied to the host stays on the device only
// until another value needs its place. A fetch starts only when the place for it is free.

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "src/plan/optimal/problem.h"
#include "src/plan/placement.h"
#include "vdnn/plan.h"
#include "vdnn/schedule.h"

namespace vdnn::optimal {

// The requirements of a plan that may give way if the plan does not fit.
struct GiveWay {
  enum class Copies : std::uint8_t {
    kNone,
    kQueues,  // values give way only for the time in which their copy waits for the link
    kAll      // values give way even if ops then wait for copies
  };
  Copies copies = Copies::kNone;
  // Whether a result's few bytes are released while its copy to the host still waits for earlier offloads.
  // The next user of these bytes then waits for the copy.
  bool results = false;
  // The fraction by which the goal for the arena exceeds the plan's memory.
  double room = 0;
};
inline constexpr std::array kWaysToGive{GiveWay{},
                                        GiveWay{.results = true},
                                        GiveWay{.copies = GiveWay::Copies::kQueues},
                                        GiveWay{.copies = GiveWay::Copies::kQueues, .results = true},
                                        GiveWay{.copies = GiveWay::Copies::kAll, .room = 0.06},
                                        GiveWay{.copies = GiveWay::Copies::kAll, .room = 0.04},
                                        GiveWay{.copies = GiveWay::Copies::kAll, .room = 0.02},
                                        GiveWay{.copies = GiveWay::Copies::kAll},
                                        GiveWay{.copies = GiveWay::Copies::kAll, .results = true}};
// The number of ways, at the end of kWaysToGive, that need the least memory.
inline constexpr std::size_t kWaysInLeastMemory = 2;

// When the places of offloaded inputs stay free for the next step's inputs.
struct NextInputs {
  OpId from;          // the first slot at which they are free
  bool firm = false;  // whether they stay free even if the arena then exceeds its goal
};

// `goal`: bytes for all that is not persistent. The arena exceeds the goal only if no better addresses are
// found. If values give way, the transfers of `plan` change. A schedule whose arena exceeds `most` bytes is
// not used, so it has no waits.
Schedule arrange(const Problem& problem, Plan& plan, NextInputs next, std::uint64_t goal, GiveWay give_way,
                 Placements& placements, std::uint64_t most = ~std::uint64_t{0});

// By buffer of the schedule: the op whose workspace the buffer is, or kNone.
std::vector<OpId> ops_of_workspaces(const Schedule& schedule);

// A schedule with these lifetimes should reserve at most this many bytes, even if the budget is larger.
std::uint64_t most_reserved_bytes(std::span<const Lifetime> lifetimes, std::uint64_t alignment);

// By op: the largest workspace that has a place within `most` bytes, at each launch of the op, if all other
// buffers keep their offsets.
std::vector<std::uint64_t> largest_places(const Schedule& schedule, std::uint64_t alignment,
                                          std::uint64_t most);

// `plan` must differ from the plan of `before` only in algorithms. Returns the ops whose new workspaces have
// no place within `most` bytes if all other buffers keep their offsets.
std::vector<OpId> ops_without_place(const Problem& problem, const Plan& plan, const Schedule& before,
                                    std::uint64_t most);

// The schedule of `plan` with offsets like those of `before`, which must have addresses. A buffer gets the
// offset of the buffer of `before` with the same name and size, unless an earlier buffer that keeps its
// offset overlaps it. All other buffers get the lowest free offset. If the arena then exceeds `most` bytes,
// all buffers are placed anew. Returns nothing if no addresses are found.
std::optional<Schedule> arrange_as_before(const Problem& problem, const Plan& plan, const Schedule& before,
                                          Placements& placements, std::uint64_t most);

}  // namespace vdnn::optimal
