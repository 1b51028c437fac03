#pragma once
// A plan: the decisions for one tape. For each feature map and each gap between two of its readers: does it
// stay on the device, leave for the host and come back, or go and be made again; for each op: which
// algorithm. Policies are functions from a tape (and costs, budgets) to a plan; the static ones here follow
// the vDNN paper (Rhu et al., MICRO 2016).
//
//   baseline  network-wide allocation in Torch's manner: every feature map and gradient at once, two shared
//             buffers for gradient maps, one shared workspace; no liveness
//   none      layer-wise allocation by liveness; nothing is offloaded
//   all       every feature map outside the classifier that backward reads is offloaded
//   conv      those that a convolution reads
//
// Fork rule: a feature map that several layers read is offloaded with its last forward reader. Prefetch
// window: before the backward pass of layer m, search from layer m-1 downwards for the first layer whose
// feature map is still on the host, no further than the nearest convolution; what is found is fetched while
// layer m computes.

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
  kMemory,      // least workspace; among equals the library's first
  kPerformance  // the library's own first choice
};

std::string to_string(Policy policy);
std::string to_string(AlgorithmPreference preference);

// Lives of a value.
//
// A value lives on the device from where it is made, loaded, fetched or recomputed to where its memory is
// given back. Between two of its readers, forward or backward, it may be away on the host (a Transfer) or
// dropped and made again (a Recomputation), in any number and order. Of what comes next for a value, a
// transfer's release or a recomputation, the earlier one ends its life: a transfer after `release_with`, a
// recomputation after the value's last use before `with`. The last life ends with the value's last use.
// A life without a use ends where it began: after op `prefetch_with`, or, where it was made again, at once.
// Uses are the tape's: the producer and the readers. What is launched again to make another value does not
// keep its operands.
//
// Lives of one value do not overlap. make_schedule() throws InvalidArgument for a plan that moves, releases
// or makes again what is not there, fetches or makes again what is there, or leaves an op without an operand.

// A stay on the host. The copy to the host is issued beside `offload_with`, the device's memory is given back
// after `release_with` (not before the copy is done, and the last use before the gap), and the copy back is
// issued before `prefetch_with`. The static policies offload with the last forward reader and release at
// once.
//
// `offload_with` == kNone: the value has been copied to the host by an earlier transfer in this step, and
// that copy is still right, for a value is made once a step. Its memory on the device is only given back. The
// copy keeps its memory on the host up to the last fetch from it. A later transfer of the value that does
// have an `offload_with` copies anew, once the earlier copy has been fetched for the last time.
struct Transfer {
  ValueId value = kNone;
  OpId offload_with = kNone;
  OpId release_with = kNone;
  OpId prefetch_with = kNone;
};

// A value is made again by launching its producer once more right before `with`. Its memory was given back
// after its last use before, or by a transfer's release.
//
// The producer's operands must be there then: kept, fetched, or made again with the same `with`. Those that
// are dropped and are not recomputed with `with` themselves are made again too and given back as soon as
// nothing that is made again before `with` reads them, even if they have later uses: for those they are made
// another time. So are the producer's other outputs. An operand that is away on the host is an error.
struct Recomputation {
  ValueId value = kNone;
  OpId with = kNone;
};

struct PlanOptions {
  Policy policy = Policy::kOffloadNone;
  AlgorithmPreference preference = AlgorithmPreference::kPerformance;
  // No op may use more workspace: each steps down in the order of preference until it fits.
  std::optional<std::uint64_t> workspace_limit;
  // Policies that choose algorithms (`dyn`, `optimal`) keep those that `none` has with the same options, so
  // that results have the same bits. Their plans have them as `recorded`.
  bool keep_algorithms = false;
  // Names of algorithms by names of ops: where there are any, they are taken and nothing else is. Throws
  // InvalidArgument at make_plan() where the tape has an op that is not recorded, or no such op or algorithm.
  std::map<std::string, std::string> recorded;
};

struct Plan {
  PlanOptions options;
  std::vector<std::uint32_t> algorithms;  // an op: index into Op::algorithms
  std::vector<Transfer> transfers;        // those with one `offload_with` are copied in this order
  std::vector<Recomputation> recomputations;
  bool network_wide = false;  // baseline
  // Addresses are planned with the schedule, aligned to so many bytes (a power of two). 0: the pool finds
  // them as the step runs.
  std::uint64_t placement_alignment = 0;
};

// Deterministic. Throws InvalidArgument where no algorithm of some op obeys the workspace limit, with the
// least limit that all ops could obey.
Plan make_plan(const Tape& tape, const PlanOptions& options);

// `options` for a policy that chooses algorithms: where `keep_algorithms` is set and nothing is recorded yet,
// with what `none` would have as `recorded`. Throws as make_plan() does.
PlanOptions with_kept_algorithms(const Tape& tape, PlanOptions options);

// The names of the algorithms of the ops that record theirs (Op::recorded()), by names of ops. `algorithms`:
// for each op an index into Op::algorithms.
std::map<std::string, std::string> algorithm_names(const Tape& tape,
                                                   std::span<const std::uint32_t> algorithms);

// The vDNN paper's accounting of a network-wide allocation: every X, all weights, two buffers of the largest
// gradient map, the largest workspace; no weight gradients, no optimizer state. Bytes.
std::uint64_t paper_baseline_bytes(const Tape& tape, const Plan& plan);
// The largest workspace of the algorithms chosen. Bytes.
std::uint64_t workspace_bytes(const Tape& tape, const Plan& plan);

}  // namespace vdnn
