#pragma once
// Turns decisions into plans with addresses, and enters the plans into the contest.

#include <cstdint>
#include <vector>

#include "src/plan/optimal/arrangement.h"
#include "src/plan/optimal/contest.h"
#include "src/plan/optimal/problem.h"
#include "src/plan/optimal/step_model.h"

namespace vdnn::optimal {

// The schedules that are tried for a plan. With kNone, only the model's schedule is tried. With kUsual,
// others follow if no addresses are found for it; those that delay ops come last. With kToFit, schedules that
// delay ops come first, even before the model's, since they fit most often. The rest follow if none of them
// fits.
enum class Insistence : std::uint8_t { kNone, kUsual, kToFit };

class Candidates {
 public:
  // `first` is the same problem with no workspace limit except the user's. All problems share `placements`,
  // since several problems can lead to the same schedule. All arguments must outlive this object.
  Candidates(const Problem& problem, const Problem& first, const PlanOptions& options, Contest& contest,
             Placements& placements);

  // Enters a plan for `decisions` if addresses are found within `enough` bytes. `insistence` determines
  // whether that may be a schedule other than the model's. If the step of the model's plan is longer than by
  // the model, also enters plans that load the next step's inputs earlier. Also enters plans whose peak is
  // lower than that of all known plans. `bytes` are for all that is not persistent.
  void consider(const Decisions& decisions, std::uint64_t bytes, std::uint64_t enough,
                Insistence insistence = Insistence::kUsual);
  // Enters the plan of the model with addresses that are closer together than `bytes` requires. This rarely
  // delays an op.
  void consider_closer(const Decisions& decisions, std::uint64_t bytes, std::uint64_t enough);
  // A leader's op may use an algorithm of the last resort although there is memory for a faster one. The
  // reason is that the search had a workspace limit and did not know addresses. The op switches to a faster
  // algorithm if there is a place for that algorithm's workspace while all other buffers keep their places.
  void consider_without_last_resorts(const Leader& leader, std::uint64_t enough);
  // How many seconds faster, at most, a plan of the decisions becomes if it avoids algorithms of the last
  // resort.
  double lost_to_last_resorts(const Decisions& decisions, std::uint64_t bytes);
  // The device memory for `bytes` and all that is persistent, in whole granules.
  std::uint64_t committed_bytes(std::uint64_t bytes) const;

 private:
  bool consider_with_moves(const Decisions& decisions, std::uint64_t bytes, std::uint64_t enough);
  bool consider_with_steps(Decisions decisions, Schedule schedule, std::uint64_t bytes, std::uint64_t enough);
  bool consider_with_slack(const Decisions& decisions, std::uint64_t bytes, std::uint64_t enough);
  bool consider_as_evaluated(std::uint64_t bytes, std::uint64_t enough, GiveWay give_way = {});
  bool consider_in_least_memory(std::uint64_t bytes, std::uint64_t enough);
  void consider_with_delays(std::uint64_t bytes, std::uint64_t enough);
  std::vector<OpId> ops_too_high(const Schedule& schedule, std::uint64_t goal) const;
  std::vector<OpId> last_resorts(const Plan& plan) const;
  std::uint32_t faster_choices(OpId op, std::uint32_t algorithm) const;
  bool replace_in_place(PlannedSchedule& known, std::span<const OpId> ops, std::uint64_t enough) const;
  void replace_one_by_one(const Leader& leader, std::uint64_t enough);
  bool rearrange(PlannedSchedule& known, OpId op, std::uint64_t enough) const;
  bool adopt(PlannedSchedule& known, Plan plan, std::uint64_t enough) const;
  bool fits(const Schedule& schedule, std::uint64_t enough) const;
  Schedule arrange_and_enter(std::uint64_t goal, const GiveWay& give_way, std::uint64_t enough);
  PlannedSchedule arranged(std::uint64_t goal, const GiveWay& give_way, std::uint64_t enough);
  PlannedSchedule arranged(std::uint64_t goal, const GiveWay& give_way, std::uint64_t enough,
                           NextInputs next);
  void consider_early_loads(std::uint64_t goal, const GiveWay& give_way, std::uint64_t enough);
  bool is_late(double seconds) const;
  bool may_load_early(const PlannedSchedule& known) const;
  double enter_if_small(const PlannedSchedule& candidate, std::uint64_t enough);

  const Problem& problem_;
  const Problem& first_;
  const PlanOptions& options_;
  Contest& contest_;
  StepModel model_;
  Placements& placements_;
};

}  // namespace vdnn::optimal
