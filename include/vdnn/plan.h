#pragma once
// A plan: the decisions for one tape. For each feature map: does it stay on the device, or does it leave for
// the host and come back; for each op: which algorithm. Policies are functions from a tape (and costs,
// budgets) to a plan; the static ones here follow the vDNN paper (Rhu et al., MICRO 2016).
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

// A value that is offloaded: its copy to the host is issued beside `offload_with`, its memory is given back
// after `release_with` (not before the copy is done, and the last forward reader), and its copy back is
// issued before `prefetch_with`. The static policies offload with the last forward reader and release at
// once.
struct Transfer {
  ValueId value = kNone;
  OpId offload_with = kNone;
  OpId release_with = kNone;
  OpId prefetch_with = kNone;
};

// A value whose memory is given back after its last use before `with`, and which is made again by launching
// its producer once more right before `with`. What the producer reads must be there then: kept, fetched
// before, or recomputed likewise; what is neither and has no use of its own any more is made again too, and
// given back at once.
struct Recomputation {
  ValueId value = kNone;
  OpId with = kNone;
};

struct PlanOptions {
  Policy policy = Policy::kOffloadNone;
  AlgorithmPreference preference = AlgorithmPreference::kPerformance;
  // No op may use more workspace: each steps down in the order of preference until it fits.
  std::optional<std::uint64_t> workspace_limit;
  // Names of algorithms by names of ops: where there are any, they are taken and nothing else is. Throws
  // InvalidArgument at make_plan() where the tape has an op that is not recorded, or no such op or algorithm.
  std::map<std::string, std::string> recorded;
};

struct Plan {
  PlanOptions options;
  std::vector<std::uint32_t> algorithms;  // an op: index into Op::algorithms
  std::vector<Transfer> transfers;        // in order of offload
  std::vector<Recomputation> recomputations;
  bool network_wide = false;  // baseline
  // Addresses are planned with the schedule, aligned to so many bytes (a power of two). 0: the pool finds
  // them as the step runs.
  std::uint64_t placement_alignment = 0;
};

// Deterministic. Throws InvalidArgument where no algorithm of some op obeys the workspace limit, with the
// least limit that all ops could obey.
Plan make_plan(const Tape& tape, const PlanOptions& options);

// The vDNN paper's accounting of a network-wide allocation: every X, all weights, two buffers of the largest
// gradient map, the largest workspace; no weight gradients, no optimizer state. Bytes.
std::uint64_t paper_baseline_bytes(const Tape& tape, const Plan& plan);
// The largest workspace of the algorithms chosen. Bytes.
std::uint64_t workspace_bytes(const Tape& tape, const Plan& plan);

}  // namespace vdnn
