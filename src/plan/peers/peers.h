#pragma once
// Peers of `optimal`: other methods by which programs save memory, as plans for the same tape. So peers and
// `optimal` are scheduled, checked and predicted alike (docs/comparison.md).
//
//   checkpoint-blocks  keeps the inputs of blocks and runs each block again before its backward pass
//                      (torch.utils.checkpoint around every block)
//   checkpoint-sqrt    keeps the inputs of segments of consecutive blocks; n blocks have about sqrt(n)
//                      segments (Chen et al. 2016; torch.utils.checkpoint_sequential, which does not run the
//                      last segment again)
//   save-on-cpu        copies all that backward reads to the host and back, on the compute stream
//                      (torch.autograd.graph.save_on_cpu with pinned memory)
//   offload-inputs     checkpoint-blocks whose inputs are offloaded on a separate stream and fetched one
//                      block ahead (torchtune's OffloadActivations)
//   rotor              the optimal persistent schedule of checkpoints for a chain in a memory limit (Beaumont
//                      et al. 2019; rotor.h)
//
// All peers use the algorithms that `none` has with the same options. The models leave out some costs of the
// peers, which is in the peers' favour: nothing is copied twice, and weights are not saved.

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

// Makes the schedule of a peer that does not depend on a budget. Throws InvalidArgument for kRotor, whose
// schedule depends on one, and for a tape for which the peer's rule has no schedule.
PlannedSchedule make_peer_schedule(const Tape& tape, Peer peer, const PlanOptions& options);

// Schedules of rotor for kLimits memory limits in equal steps. The largest limit is the memory that suffices
// to keep everything. The tape must outlive this object. Immutable; copies share their state.
class RotorSchedules {
 public:
  RotorSchedules(const Tape& tape, const PlanOptions& options, const PlanCosts& costs);

  static constexpr std::size_t kLimits = 500;
  // The schedule for limit number `limit`, at most kLimits. Returns nothing if the limit is too little
  // memory.
  std::optional<PlannedSchedule> within(std::size_t limit) const;

 private:
  struct Impl;
  std::shared_ptr<const Impl> impl_;
};

}  // namespace vdnn
