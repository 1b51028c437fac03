#pragma once
// A plan: the decisions for one tape. For each gap between two readers of a feature map, the plan keeps the
// map on the device, offloads it to the host, or drops and recomputes it. For each op it chooses an
// algorithm. Policies are functions from a tape (and costs, budgets) to a plan. The static ones here follow
// the vDNN paper (Rhu et al., MICRO 2016).
//
//   baseline  network-wide allocation in Torch's manner: every feature map and gradient at once, two shared
//             buffers for gradient maps, one shared workspace; no liveness
//   none      layer-wise allocation by liveness; nothing is offloaded
//   all       every feature map outside the classifier that backward reads is offloaded
//   conv      of these, the feature maps that a convolution reads
//
// Fork rule: a feature map that several layers read is offloaded with its last forward reader.
//
// Prefetch window: before the backward pass of layer m, layers are searched from m-1 downwards, no further
// than the nearest convolution. The feature map of the first layer that still has it on the host is fetched
// while layer m computes.

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "vdnn/tape.h"

namespace vdnn {

enum class Policy : std::uint8_t { kBaseline, kOffloadNone, kOffloadAll, kOffloadConv, kDynamic, kOptimal };
enum class AlgorithmPreference : std::uint8_t {
  kMemory,      // least workspace; of several with the same workspace the library's first
  kPerformance  // the library's own first choice
};

std::string to_string(Policy policy);
std::string to_string(AlgorithmPreference preference);

// Lives of a value.
//
// A *life* of a value on the device begins when the value is made, loaded, fetched or recomputed, and ends
// when its memory is given back. Between two of its readers, forward or backward, the value may be away on
// the host (a Transfer) or be dropped and made again (a Recomputation). Both may occur any number of times,
// in any order.
//
// A life ends at the next transfer or the next recomputation, whichever is earlier. A transfer ends it after
// op `release_with`, a recomputation after the value's last use before op `with`. The last life ends with the
// value's last use. A life without a use ends after op `prefetch_with` if it began with a fetch, at once if
// it began with a recomputation. Uses are those of the tape, by the producer and the readers. A second launch
// of an op to recompute another value does not count as a use of its operands.
//
// Lives of one value do not overlap. make_schedule() throws InvalidArgument for an impossible plan: it moves
// or releases a value that is not on the device, fetches or recomputes one that is on the device, or leaves
// an op without an operand.

// A value is moved to the host for some time. The copy to the host is issued beside op `offload_with`. The
// device's memory is given back after op `release_with`, once the copy and the last use before the gap are
// done. The copy back is issued before op `prefetch_with`. The static policies offload with the last forward
// reader and release at once.
//
// `offload_with` == kNone: an earlier transfer of the same step has copied the value to the host. That copy
// is still valid, since a value is made once per step, so only the device's memory is given back. The copy
// occupies host memory until the last fetch from it. A later transfer of the value with an `offload_with`
// copies anew, after the last fetch from the earlier copy.
struct Transfer {
  ValueId value = kNone;
  OpId offload_with = kNone;
  OpId release_with = kNone;
  OpId prefetch_with = kNone;
};

// The value is made again: its producer is launched once more right before op `with`. Its memory was given
// back after its last use before `with`, or by a transfer's release.
//
// The producer's operands must then be on the device: kept, fetched, or recomputed with the same `with`. An
// operand that was dropped and that the plan does not recompute with `with` is made again, too. Its memory is
// given back once no launch up to `with` reads it any more, even if it has later uses; for those it is made
// another time. The producer's other outputs are treated in the same way. An operand that is away on the host
// is an error.
struct Recomputation {
  ValueId value = kNone;
  OpId with = kNone;
};

struct PlanOptions {
  Policy policy = Policy::kOffloadNone;
  AlgorithmPreference preference = AlgorithmPreference::kPerformance;
  // Limit on the workspace of each op, in bytes. An op uses the first algorithm in the order of preference
  // that obeys the limit.
  std::optional<std::uint64_t> workspace_limit;
  // Policies that choose algorithms (`dyn`, `optimal`) keep those of `none` with the same options, so that
  // results have the same bits. Their plans have the kept algorithms as `recorded`.
  bool keep_algorithms = false;
  // Algorithm names by op name. If not empty, every op that records its algorithm (Op::recorded()) uses the
  // algorithm named here. make_plan() throws InvalidArgument if such an op has no entry, or if the tape lacks
  // an op or algorithm that is named.
  std::map<std::string, std::string> recorded;
};

struct Plan {
  PlanOptions options;
  std::vector<std::uint32_t> algorithms;  // by op: index into Op::algorithms
  std::vector<Transfer> transfers;        // those with the same `offload_with` are copied in this order
  std::vector<Recomputation> recomputations;
  bool network_wide = false;  // baseline
  // The alignment in bytes, a power of two, of addresses that are planned with the schedule. 0: the pool
  // finds addresses as the step runs.
  std::uint64_t placement_alignment = 0;
};

// The plan of a static policy. Deterministic. Throws InvalidArgument for `dyn` and `optimal`. Also throws it
// if an op has no algorithm that obeys the workspace limit; the message names the least limit that all ops
// can obey.
Plan make_plan(const Tape& tape, const PlanOptions& options);

// `options` for a policy that chooses algorithms: if `keep_algorithms` is set and nothing is recorded yet,
// the algorithms of `none` become `recorded`. Throws as make_plan() does.
PlanOptions with_kept_algorithms(const Tape& tape, PlanOptions options);

// Algorithm names by op name, for the ops that record their algorithm (Op::recorded()). `algorithms` has an
// index into Op::algorithms for each op.
std::map<std::string, std::string> algorithm_names(const Tape& tape,
                                                   std::span<const std::uint32_t> algorithms);

// The vDNN paper's accounting of a network-wide allocation: every X, all weights, two buffers of the largest
// gradient map, the largest workspace; no weight gradients, no optimizer state. Bytes.
std::uint64_t paper_baseline_bytes(const Tape& tape, const Plan& plan);
// The largest workspace of the algorithms chosen. Bytes.
std::uint64_t workspace_bytes(const Tape& tape, const Plan& plan);

}  // namespace vdnn
