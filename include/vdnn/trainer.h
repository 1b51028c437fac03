#pragma once
// Carries a planned run out: makes the device with its budget, initialises the parameters, feeds batches that
// a thread of its own has loaded ahead, reads each loss one step late, evaluates after every epoch.
//
// The pools, the parameters and the compiled programs live as long as the Trainer; executors as long as a
// phase (training, evaluation), so evaluation runs in the memory that training has left.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "vdnn/cpu_device.h"
#include "vdnn/dataset.h"
#include "vdnn/executor.h"
#include "vdnn/planned_run.h"

namespace vdnn {

struct TrainOptions {
  float learning_rate = 0.01F;
  std::uint64_t seed = 1;  // of initialisation and shuffling
  // Exactly one of the two is > 0. Epochs are followed by an evaluation where there is a test split.
  std::uint64_t epochs = 0;
  std::uint64_t steps = 0;
  std::optional<double> link_gbytes_per_second;
  bool trace = false;  // record the last few steps
  // Debugging aids of the cpu driver; they want RunOptions::page_aligned_blocks where the driver does.
  std::optional<std::uint64_t> delay_seed;
  bool protect_released = false;
  bool check_accesses = false;
};

// After each step, when its loss has been read.
struct StepReport {
  std::uint64_t step = 0;   // since the start, from 1
  std::uint64_t steps = 0;  // in all
  std::uint64_t steps_per_epoch = 0;
  double loss = 0;
  double images_per_second = 0;
  double stall_fraction = 0;
  std::uint64_t memory_bytes = 0;  // committed
};

struct TrainingResult {
  std::uint64_t steps = 0;
  double loss = 0;                      // of the last step
  std::optional<double> test_accuracy;  // after the last epoch
  std::uint64_t peak_bytes = 0;         // counted by the driver
  double average_bytes = 0;
  std::uint64_t host_bytes = 0;
  double step_seconds = 0;  // medians over the steps but the first
  double stall_seconds = 0;
  double images_per_second = 0;
  std::uint64_t system_allocations_after_first_step = 0;  // device commits and page-locks
  std::string weights_sha256;
  std::vector<TraceEvent> trace;
  std::vector<std::string> stream_names;
};

class Trainer {
 public:
  // `run` and `data` must outlive the trainer. Throws OutOfMemory where the run does not fit, InvalidArgument
  // for a simulated device.
  Trainer(const PlannedRun& run, const DatasetSplits& data, const TrainOptions& options);
  ~Trainer();
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  // Trains as the options say, once. `report` may be empty.
  TrainingResult train(const std::function<void(const StepReport&)>& report);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// Fresh parameters of a tape in logical form (dense, filters KRSC), as the recipes say, a function of the
// seed.
std::vector<std::vector<float>> initial_parameters(const Tape& tape, std::uint64_t seed);

// SHA-256 over all parameters in order of creation, little-endian fp32 in logical order.
std::string parameters_sha256(const std::vector<std::vector<float>>& parameters);

}  // namespace vdnn
