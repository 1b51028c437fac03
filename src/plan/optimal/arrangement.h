#pragma once
// Turns a plan into a schedule with addresses. If addresses are scarce, values that are resident without need
// give way. Then a value that has been copied to the host stays only until another value needs its place, and
// a fetch starts only when its place is free.

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "src/plan/optimal/problem.h"
#include "src/plan/placement.h"
#include "vdnn/plan.h"
#include "vdnn/schedule.h"

namespace vdnn::optimal {

// Which parts of a plan may give way if it does not fit.
struct GiveWay {
  enum class Copies : std::uint8_t {
    kNone,
    kQueues,  // only the time in which a copy waits for the link
    kAll      // copies may delay ops
  };
  Copies copies = Copies::kNone;
  // Whether a result's few bytes are released while its copy to the host still queues after the offloads. The
  // next user of these bytes then waits.
  bool results = false;
  // The fraction by which the arena may first exceed the plan's memory.
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

// `next_load`: from this slot on, the places of inputs that have left stay free for the next step's inputs.
// `goal`: bytes for all that is not persistent, exceeded only if no better addresses are found. Parts that
// give way change the transfers of `plan`. A schedule whose arena exceeds `most` bytes is of no use and gets
// no waits.
Schedule arrange(const Problem& problem, Plan& plan, OpId next_load, std::uint64_t goal, GiveWay give_way,
                 Placements& placements, std::uint64_t most = ~std::uint64_t{0});

// By buffer of the schedule: the op whose workspace it is, or kNone.
std::vector<OpId> ops_of_workspaces(const Schedule& schedule);

// `plan` differs from that of `before` only in algorithms. Returns the ops whose new workspaces have no place
// within `most` bytes if all other buffers keep their offsets.
std::vector<OpId> ops_without_place(const Problem& problem, const Plan& plan, const Schedule& before,
                                    std::uint64_t most);

// The schedule of `plan`, which differs from that of `before` only in algorithms. Buffers keep their offsets
// if the new workspaces then have room within `most` bytes; otherwise all are placed anew. Returns nothing if
// no addresses are found.
std::optional<Schedule> arrange_as_before(const Problem& problem, const Plan& plan, const Schedule& before,
                                          Placements& placements, std::uint64_t most);

}  // namespace vdnn::optimal
