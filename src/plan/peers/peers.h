#pragma once
// Peers of `optimal`: the methods by which programs save memory today, as plans for the same tape. So peers
// and `optimal` are scheduled, checked and predicted alike (docs/comparison.md).
//
//   checkpoint-blocks  keeps the inputs of blocks and runs each block again before its backward pass
//                      (torch.utils.checkpoint around every block)
//   checkpoint-sqrt    the same with about the square root as many segments of blocks (Chen et al. 2016;
//                      torch.utils.checkpoint_sequential, which keeps all of the last segment)
//   save-on-cpu        copies all that backward reads to the host and back, on the compute stream
//                      (torch.autograd.graph.save_on_cpu with pinned memory)
//   offload-inputs     checkpoint-blocks whose inputs are offloaded on a separate stream and fetched one
//                      block ahead (torchtune's OffloadActivations)
//   rotor              the optimal persistent schedule of checkpoints for a chain in a memory limit (Beaumont
//                      et al. 2019; rotor.h)
//
// All peers use the algorithms that `none` has with the same options. Costs that the model of a peer leaves
// out are in the peer's favour: nothing is copied twice, and weights are not saved.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/plan/peers/blocks.h"
#include "vdnn/optimal_plan.h"
#include "vdnn/plan.h"
#include "vdnn/plan_costs.h"
#include "vdnn/schedule.h"

namespace vdnn {

enum class Peer : std::uint8_t { kCheckpointBlocks, kCheckpointSqrt, kSaveOnCpu, kOffloadInputs, kRotor };

std::span<const Peer> all_peers();
std::string to_string(Peer peer);

// The schedule of a peer that does not depend on a budget. Throws InvalidArgument for kRotor, and for a tape
// for which the peer's rule has no schedule.
PlannedSchedule make_peer_schedule(const Tape& tape, Peer peer, const PlanOptions& options);

// Schedules of rotor for kLimits memory limits in equal steps; the largest is the memory that keeping
// everything needs. The tape outlives them. Immutable; copies share their state.
class RotorSchedules {
 public:
  RotorSchedules(const Tape& tape, const PlanOptions& options, const PlanCosts& costs);

  static constexpr std::size_t kLimits = 500;
  // `limit` is at most kLimits. Returns nothing if it is too little memory.
  std::optional<PlannedSchedule> within(std::size_t limit) const;

 private:
  struct Impl;
  std::shared_ptr<const Impl> impl_;
};

}  // namespace vdnn
