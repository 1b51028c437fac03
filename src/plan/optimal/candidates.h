#pragma once
// From decisions to plans with addresses, which enter the contest.

#include <cstdint>
#include <vector>

#include "src/plan/optimal/arrangement.h"
#include "src/plan/optimal/contest.h"
#include "src/plan/optimal/layout.h"
#include "src/plan/optimal/problem.h"

namespace vdnn::optimal {

// Whether other schedules are looked for where no addresses are found.
enum class Insistence : std::uint8_t { kNone, kUsual };

class Candidates {
 public:
  // `first` is the same problem without a limit but the user's. All outlive this.
  Candidates(const Problem& problem, const Problem& first, const PlanOptions& options, Contest& contest);

  // As the model has it; and where no addresses are found for that in `enough` bytes, with what has to give
  // way, if it is insisted on that. Also whatever takes less than all that is known. `bytes`: for what is not
  // persistent.
  void consider(const Decisions& decisions, std::uint64_t bytes, std::uint64_t enough,
                Insistence insistence = Insistence::kUsual);
  // The same where the addresses are closer together than `bytes` asks for, which holds no op up, as a rule.
  void consider_closer(const Decisions& decisions, std::uint64_t bytes, std::uint64_t enough);
  // An op of a leader whose schedule has addresses may have an algorithm of the last resort though there is
  // memory for another: it was searched under a limit, or without addresses. Where a workspace has a place
  // beside all that lies where it lies, the op uses the other.
  void consider_without_last_resorts(const Leader& leader, std::uint64_t enough);
  // No plan that is made of the decisions without last resorts is faster by more. Seconds.
  double lost_to_last_resorts(const Decisions& decisions, std::uint64_t bytes);
  // Device memory for that many bytes beside what is persistent, in whole granules.
  std::uint64_t committed_bytes(std::uint64_t bytes) const;

 private:
  bool consider_with_moves(const Decisions& decisions, std::uint64_t bytes, std::uint64_t enough);
  bool consider_with_steps(Decisions decisions, Schedule schedule, std::uint64_t bytes, std::uint64_t enough);
  bool consider_with_slack(const Decisions& decisions, std::uint64_t bytes, std::uint64_t enough);
  bool consider_as_evaluated(std::uint64_t bytes, std::uint64_t enough, GiveWay give_way = {});
  void consider_with_delays(std::uint64_t bytes, std::uint64_t enough);
  std::uint64_t close_bytes(const Schedule& schedule) const;
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
  void enter_if_small(const PlannedSchedule& candidate, std::uint64_t enough);

  const Problem& problem_;
  const Problem& first_;
  const PlanOptions& options_;
  Contest& contest_;
  Layout layout_;
  Placements placements_;
};

}  // namespace vdnn::optimal
