#pragma once
// A plan with addresses: lowered, placed, and where places are scarce, what is resident without need may have
// to give way: what has been copied to the host stays only until others take its place, and what is fetched
// comes no sooner than its place is free.

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "src/plan/optimal/problem.h"
#include "src/plan/placement.h"
#include "vdnn/plan.h"
#include "vdnn/schedule.h"

namespace vdnn::optimal {

// What of a plan may give way where it does not fit.
struct GiveWay {
  enum class Copies : std::uint8_t {
    kNone,
    kQueues,  // what waits for the link: each copy keeps the time that it takes on a link that is free
    kAll      // they may hold up the ops
  };
  Copies copies = Copies::kNone;
  // The few bytes of results, while they are copied to the host behind the offloads: who takes them waits.
  bool results = false;
  // So large a part more than the plan asks for may be taken before anything does.
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

// `next_load`: from this slot on, the places of inputs that have left are kept free for the next step's.
// `goal`: for what is not persistent, in bytes; taken more only where no better addresses are found. What
// gives way changes the transfers of `plan`. A schedule whose arena has more than `most` bytes is of no use:
// it has no waits.
Schedule arrange(const Problem& problem, Plan& plan, OpId next_load, std::uint64_t goal, GiveWay give_way,
                 Placements& placements, std::uint64_t most = ~std::uint64_t{0});

// Of a schedule with workspaces, a buffer: the op that it is the workspace of; kNone: none.
std::vector<OpId> ops_of_workspaces(const Schedule& schedule);

// `plan` differs from that of `before` in algorithms alone. The ops whose new workspaces have no place within
// `most` bytes where everything else lies where it lay.
std::vector<OpId> ops_without_place(const Problem& problem, const Plan& plan, const Schedule& before,
                                    std::uint64_t most);

// The schedule of `plan`, which differs from that of `before` in algorithms alone. Everything lies where it
// lay if there is room for new workspaces then, within `most` bytes; else all is placed anew. Nothing: no
// addresses are found.
std::optional<Schedule> arrange_as_before(const Problem& problem, const Plan& plan, const Schedule& before,
                                          std::uint64_t most);

}  // namespace vdnn::optimal
