#pragma once
// The tables of the vDNN paper (Rhu et al., MICRO 2016), recomputed on `sim:titan-x` with the classic
// catalog, beside the paper's figures. docs/planner.md explains where they differ.
//
// Memory is counted in two ways. *Ours*: everything that the device commits, as in `vdnn plan`. *The
// paper's*: feature maps, gradient maps, tensors saved for backward, workspace and weights, without gradients
// of weights, the optimizer's state and the allocator's gaps. The paper's bars of vDNN seem to leave out the
// classifier's weights, too, while those of its baseline include them. So our tables have both counts.

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "vdnn/plan.h"
#include "vdnn/schedule.h"
#include "vdnn/sim_device.h"
#include "vdnn/tape.h"

namespace vdnn {

// Device bytes of one step in our accounting.
struct MemoryUse {
  std::uint64_t peak_bytes = 0;  // committed
  double average_bytes = 0;      // allocated, mean over the step's instructions
};

// Memory in the paper's accounting. The paper does not specify over what it averages.
struct PaperMemoryUse {
  std::uint64_t peak_bytes = 0;
  double average_over_time_bytes = 0;  // weighted by the times of ops
  double average_over_ops_bytes = 0;
};

// The paper's values if it has any, read off its figures to within about 20 MiB.
struct PaperFigures {
  std::optional<double> peak_mib;
  std::optional<double> average_mib;
  std::optional<double> relative_speed;
};

struct ReproducedPolicy {
  std::string name;  // in the paper's notation: "all(m)"
  MemoryUse ours;
  PaperMemoryUse with_classifier;
  PaperMemoryUse without_classifier;  // without the classifier's weights
  std::uint64_t offload_bytes = 0;
  double relative_speed = 0;  // 1: the speed of the baseline with performance-optimal algorithms
  PaperFigures paper;
};

// The bytes that leave the device in a step.
struct ReproducedTraffic {
  std::string policy;
  std::uint64_t bytes = 0;
  std::optional<double> paper_mib;
};

// A network that fits under every policy, with all policies side by side.
struct ReproducedNetwork {
  std::string model;
  std::int64_t batch = 0;
  std::vector<ReproducedTraffic> traffic;
  std::vector<ReproducedPolicy> policies;  // the baselines first
};

// A network that does not fit under every policy: `dyn` in the paper's 12 GiB or, if that does not suffice,
// in its smallest budget.
struct ReproducedLimit {
  std::string model;
  std::int64_t batch = 0;
  std::uint64_t paper_baseline_bytes = 0;  // with performance-optimal algorithms
  bool fits = false;                       // into 12 GiB
  std::uint64_t budget_bytes = 0;
  std::uint64_t peak_bytes = 0;  // ours
  std::uint64_t host_bytes = 0;  // page-locked
  std::uint64_t offload_bytes = 0;
  double relative_speed = 0;  // 1: speed of the oracle
  std::optional<double> paper_relative_speed;
};

struct Vdnn2016 {
  std::vector<ReproducedNetwork> networks;
  std::vector<ReproducedLimit> limits;
};

// Takes less than 1 s and is deterministic.
Vdnn2016 reproduce_vdnn2016();

// The paper's accounting of a layer-wise schedule (see above).
enum class ClassifierWeights : std::uint8_t { kCounted, kLeftOut };
PaperMemoryUse paper_memory(const Tape& tape, const Schedule& schedule, const SimProfile& profile,
                            ClassifierWeights classifier);

// Tables for people.
void print(std::ostream& out, const Vdnn2016& reproduction);
// Objects of docs/reproduction.schema.json without the key "schema", one per network, the limits last.
std::vector<nlohmann::ordered_json> to_json(const Vdnn2016& reproduction);

}  // namespace vdnn
