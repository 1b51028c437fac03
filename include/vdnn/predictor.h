#pragma once
// What a schedule will take and how long a step will be, without running it: the real executor and the real
// allocator on the `sim` driver. There is no second model of the runtime that could drift from the first, so
// the predicted peak is the peak that the device will count, to the byte. Times are as good as the profile.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "vdnn/address_range.h"
#include "vdnn/collective_costs.h"
#include "vdnn/forecast.h"
#include "vdnn/plan_costs.h"
#include "vdnn/schedule.h"
#include "vdnn/sim_device.h"
#include "vdnn/tape.h"

namespace vdnn {

struct PredictionOptions {
  SimProfile profile;                // of the device that it stands for
  bool page_aligned_blocks = false;  // as the device is made
  bool graph = false;                // as ExecutorParts has it, of training
  bool trace = false;                // record the last step
  CollectiveCosts collectives = {};  // of a tape that several ranks train together
  std::uint32_t micro_steps = 1;     // an update, as TrainingOptions has it
};

// When an instruction runs on its stream; an allocation or a release: when the compute stream gets there in
// the order of the list.
struct InstructionTime {
  double begin_seconds = 0;
  double end_seconds = 0;
};

// The last step of a prediction, instruction by instruction. Steps overlap: what does not wait for the step
// before, as the copy of the next batch, begins before `begin_seconds`.
struct TracedStep {
  double begin_seconds = 0;              // when everything of the step before is done
  std::vector<InstructionTime> times;    // an instruction
  std::vector<AddressRange> placements;  // a buffer: where it lies in its space
};

struct Prediction {
  std::uint64_t peak_bytes = 0;  // committed; with any budget not below this, the same
  double average_bytes = 0;      // handed out, mean over the step's instructions
  std::uint64_t host_bytes = 0;  // page-locked, with the batches' staging
  double step_seconds = 0;       // from step to step in the steady state; the micro-step that updates
  double stall_seconds = 0;      // of the compute stream in such a step, waiting for transfers
  // The others, which leave out what belongs to the update: their mean, so that an update takes
  // step_seconds + (micro_steps - 1) * micro_step_seconds. 0 where there are none.
  double micro_step_seconds = 0;
  // Empty where it was not traced.
  std::vector<TraceEvent> trace;
  std::vector<std::string> stream_names;
  std::optional<TracedStep> step;
};

// Deterministic. Needs as much simulated memory as it takes: no budget can refuse.
Prediction predict(const Tape& tape, const Schedule& schedule, const PredictionOptions& options);

// What policies that choose by predictions are handed.
std::unique_ptr<Forecaster> make_forecaster(PredictionOptions options);
PlanCosts plan_costs(const Tape& tape, const PredictionOptions& options);

// The peak (committed bytes) of evaluating while the parameters and the optimizer's state of `training` are
// resident and nothing else of it is.
std::uint64_t predict_evaluation_peak(const Tape& training, const Tape& evaluation,
                                      const Schedule& evaluation_schedule, const PredictionOptions& options);

}  // namespace vdnn
