#pragma once
// The tables of the vDNN paper (Rhu et al., MICRO 2016), computed again on `sim:titan-x` with the classic
// catalog, beside the paper's figures. docs/planner.md explains where they differ.
//
// Memory is counted in two ways. *Ours*: everything that the device commits, as `vdnn plan` says it. *The
// paper's*: feature maps, gradient maps, what is saved for backward, workspace and weights, without gradients
// of weights and the optimizer's state, and without what the allocator's gaps add; the paper's bars of vDNN
// seem to leave the classifier's weights out, too, and those of its baseline not, so both are given.

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

// Device bytes of one step, as we count.
struct MemoryUse {
  std::uint64_t peak_bytes = 0;  // committed
  double average_bytes = 0;      // handed out, mean over the step's instructions
};

// As the paper counts. It does not say what it averages over.
struct PaperMemoryUse {
  std::uint64_t peak_bytes = 0;
  double average_over_time_bytes = 0;  // that ops take
  double average_over_ops_bytes = 0;
};

// What the paper has for it, where it has: measured off its figures, about 20 MiB up or down.
struct PaperFigures {
  std::optional<double> peak_mib;
  std::optional<double> average_mib;
  std::optional<double> relative_speed;
};

struct ReproducedPolicy {
  std::string name;  // as the paper writes it: "all(m)"
  MemoryUse ours;
  PaperMemoryUse with_classifier;
  PaperMemoryUse without_classifier;  // without its weights
  std::uint64_t offload_bytes = 0;
  double relative_speed = 0;  // 1: of the baseline with performance-optimal algorithms
  PaperFigures paper;
};

// What leaves the device in a step.
struct ReproducedTraffic {
  std::string policy;
  std::uint64_t bytes = 0;
  std::optional<double> paper_mib;
};

// A network that fits whatever the policy: all of them side by side.
struct ReproducedNetwork {
  std::string model;
  std::int64_t batch = 0;
  std::vector<ReproducedTraffic> traffic;
  std::vector<ReproducedPolicy> policies;  // the baselines first
};

// A network that does not: `dyn` in the paper's 12 GiB, or, where it wants more, in just so much.
struct ReproducedLimit {
  std::string model;
  std::int64_t batch = 0;
  std::uint64_t paper_baseline_bytes = 0;  // with performance-optimal algorithms
  bool fits = false;                       // into 12 GiB
  std::uint64_t budget_bytes = 0;
  std::uint64_t peak_bytes = 0;  // ours
  std::uint64_t host_bytes = 0;  // page-locked
  std::uint64_t offload_bytes = 0;
  double relative_speed = 0;  // 1: of the oracle
  std::optional<double> paper_relative_speed;
};

struct Vdnn2016 {
  std::vector<ReproducedNetwork> networks;
  std::vector<ReproducedLimit> limits;
};

// Less than a second; deterministic.
Vdnn2016 reproduce_vdnn2016();

// As the paper counts a layer-wise schedule (see above).
enum class ClassifierWeights : std::uint8_t { kCounted, kLeftOut };
PaperMemoryUse paper_memory(const Tape& tape, const Schedule& schedule, const SimProfile& profile,
                            ClassifierWeights classifier);

// Tables for people.
void print(std::ostream& out, const Vdnn2016& reproduction);
// Objects of docs/reproduction.schema.json but for "schema", one a network, the limits after the others.
std::vector<nlohmann::ordered_json> to_json(const Vdnn2016& reproduction);

}  // namespace vdnn
