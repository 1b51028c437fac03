#pragma once
// Predicts the memory of a schedule and the time of its steps with the real executor and the real allocator
// on the `sim` driver. Since no second model of the runtime exists that could differ from it, the predicted
// peak is the peak that the device will count, to the byte. Times are as good as the profile.

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
  SimProfile profile;                // of the predicted device
  bool page_aligned_blocks = false;  // as in CpuDeviceOptions
  bool graph = false;                // as in ExecutorParts, for training
  bool trace = false;                // record the last step
  CollectiveCosts collectives = {};  // for tapes that several ranks train together
  std::uint32_t micro_steps = 1;     // per update, as in TrainingOptions
};

// When an instruction runs on its stream. For an allocation or a release: when the compute stream reaches it
// in the order of the list.
struct InstructionTime {
  double begin_seconds = 0;
  double end_seconds = 0;
};

// The last step of a prediction, instruction by instruction. Steps overlap: instructions that do not wait for
// the previous step, for example the copy of the next batch, begin earlier than `begin_seconds`.
struct TracedStep {
  double begin_seconds = 0;              // when the previous step is done
  std::vector<InstructionTime> times;    // by instruction
  std::vector<AddressRange> placements;  // by buffer, in its space
};

struct Prediction {
  std::uint64_t peak_bytes = 0;  // committed; the same with any budget that is not smaller
  double average_bytes = 0;      // in use, mean over the step's instructions
  std::uint64_t host_bytes = 0;  // page-locked, staged batches included
  double step_seconds = 0;       // from step to step in the steady state, of micro-steps that update
  double stall_seconds = 0;      // part of step_seconds: the compute stream waits for transfers
  // Mean of the micro-steps without an update, so that an update needs step_seconds +
  // (micro_steps - 1) * micro_step_seconds. 0 if there are none.
  double micro_step_seconds = 0;
  // Empty without PredictionOptions::trace.
  std::vector<TraceEvent> trace;
  std::vector<std::string> stream_names;
  std::optional<TracedStep> step;
};

// Deterministic. The simulated device has no budget, so no prediction runs out of memory.
Prediction predict(const Tape& tape, const Schedule& schedule, const PredictionOptions& options);

// Forecasts for policies that choose by predictions. Never traces.
std::unique_ptr<Forecaster> make_forecaster(PredictionOptions options);
// The costs of the ops of `tape` and of the link on the profile's device, for planners.
PlanCosts plan_costs(const Tape& tape, const PredictionOptions& options);

// The peak of evaluation in committed bytes. Of `training`, only the parameters and the optimizer's state are
// resident.
std::uint64_t predict_evaluation_peak(const Tape& training, const Tape& evaluation,
                                      const Schedule& evaluation_schedule, const PredictionOptions& options);

}  // namespace vdnn
