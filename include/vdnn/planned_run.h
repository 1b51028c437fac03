#pragma once
// All decisions that precede a run: network, tape, plan, schedule and predicted memory and time. `vdnn plan`
// prints them and `vdnn train` carries them out. Both get them from here, so they cannot disagree.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "vdnn/dataset.h"
#include "vdnn/gpu_system.h"
#include "vdnn/learned_step.h"
#include "vdnn/measured_costs.h"
#include "vdnn/network.h"
#include "vdnn/op_library.h"
#include "vdnn/option_error.h"
#include "vdnn/plan.h"
#include "vdnn/predictor.h"
#include "vdnn/schedule.h"
#include "vdnn/sim_device.h"
#include "vdnn/zoo.h"

namespace vdnn {

// 100 Gb/s, the rate of InfiniBand EDR and 100-gigabit Ethernet. NCCL's cost model uses 12.0 for such a port.
inline constexpr double kNetworkBytesPerSecond = 12.5e9;
// Latency of one hop of a ring over the network in NCCL's own cost model (src/graph/tuning.cc, hwLat).
inline constexpr double kNetworkSeconds = 14e-6;

// Default time limit for trials of engines.
inline constexpr double kEngineTrialSeconds = 60;

// The default file for RunOptions::engine_cache, by the XDG base directory specification. It is
// vdnn/engine_timings.json in the folder `xdg_cache_home` (the variable XDG_CACHE_HOME) if that is an
// absolute path, otherwise in the folder .cache of `home` (HOME). Absent if neither names a folder. The
// values are arguments because the library reads no environment variables.
std::optional<std::filesystem::path> default_engine_cache(const std::optional<std::string>& xdg_cache_home,
                                                          const std::optional<std::string>& home);

struct RunOptions {
  ModelOptions model;
  // The learned step of a foreign program, instead of a model; of `model` only the batch is then used. Such a
  // run can be planned and predicted, but not carried out. Null: none.
  std::shared_ptr<const LearnedStep> step;
  // "auto" (the GPU with the most free memory, or cpu if no GPU can be driven in this budget), "cpu",
  // "cuda:N", "sim:NAME", or "sim:FILE.json" for a device that the caller describes.
  std::string device = "auto";
  // Where `cuda:N` and `auto` look for GPUs. Null: make_gpu_system().
  std::shared_ptr<GpuSystem> gpus;
  // For a GPU that is one of several ranks: returns the bytes of device memory that joining the ranks needs
  // in addition to context and libraries. measure_communicator() in trainer.h measures them; all ranks call
  // it together. Planning calls the function once, on the planning thread; PlannedRun::options keeps the
  // function. Empty: unknown.
  std::function<std::uint64_t(Device& device, int gpu)> communicator_bytes;
  // Device budget in bytes, > 0. Absent: the device's memory. For a GPU that is the free memory minus a
  // reserve; for cpu it is half of the machine's memory, or of the limit of the process's control group.
  std::optional<std::uint64_t> memory_bytes;
  // The reserve of a GPU's default budget, see CudaDeviceOptions::reserve_bytes. Not allowed with
  // memory_bytes.
  std::optional<std::uint64_t> gpu_reserve_bytes;
  // Budget for page-locked memory in bytes, > 0. Absent: half of the machine's memory, or of the limit of the
  // process's control group.
  std::optional<std::uint64_t> host_memory_bytes;
  // The number of the machine's devices that copy at once, this one included (> 0). Predictions lower the
  // rates of its link if some of these devices share its PCIe root (SimProfile). Absent: the number that
  // train together.
  std::optional<std::uint64_t> link_shared_by;
  // For predictions: the number of machines over which the ranks of `training` are spread evenly (> 0, a
  // divisor of the ranks).
  std::uint32_t machines = 1;
  // For predictions: the rate of a machine's network, in both directions at once; the machine's devices share
  // it (> 0).
  double network_bytes_per_second = kNetworkBytesPerSecond;
  // Compute threads of `cpu`. 0: all cores.
  int threads = 0;
  // Absent: auto, which is `none` if it fits, else `optimal`.
  std::optional<Policy> policy;
  AlgorithmPreference algorithms = AlgorithmPreference::kPerformance;
  std::optional<std::uint64_t> workspace_limit;
  // `dyn`, `optimal` and `auto` keep the algorithms that `none` uses with the same options, in any budget, so
  // that results have the same bits. Engines of GPUs are then timed only for `engine_timings`. Has no effect
  // with `recorded_algorithms`.
  bool keep_algorithms = false;
  // True: convolutions and matrix products may round fp32 to TF32 first; refused on devices without TF32.
  // False: neither may. Absent: as in `recorded_algorithms`, or, without these, as in PyTorch, where only
  // convolutions may, on GPUs that have TF32.
  std::optional<bool> tf32;
  // Times of all engines come from this file under any policy; missing ones are measured. For `cuda:N`.
  std::optional<std::filesystem::path> engine_timings;
  // Policies that choose algorithms (`dyn`, `optimal`) use times on `cuda:N` even without `engine_timings`,
  // unless there is a profile. The engines that they could choose are timed, and this file keeps the times;
  // its folder is created if it is missing. The vdnn command keeps them in default_engine_cache(). Absent:
  // the times are lost with the run. Not used if several ranks train together, since their times would
  // differ.
  std::optional<std::filesystem::path> engine_cache;
  // Limit on the time for timing engines in the whole run (GpuOpsOptions::most_trial_seconds), in seconds. 0:
  // engines are neither timed nor looked up, unless `engine_timings` is given. Absent: kEngineTrialSeconds,
  // or unlimited with `engine_timings`. For `cuda:N`; other devices refuse more than 0.
  std::optional<double> engine_trial_seconds;
  // A file of costs that were measured for this run on this device (measured_costs.h). Predictions and the
  // choice of algorithms use them.
  std::optional<std::filesystem::path> profile;
  // Called with warnings for people. May be empty.
  std::function<void(const std::string&)> warn;
  TrainingOptions training;
  // Algorithms by name of op, as a checkpoint has recorded them; overrides `algorithms`. Empty or complete.
  // They may come from the same training with the other value of `sync_batch_normalization`. Then
  // `algorithms` decides for batch normalisation, and the recorded ones for all other ops.
  std::map<std::string, std::string> recorded_algorithms;
  // Steps of training are graphs (executor.h). Sessions refuse this on devices that cannot capture graphs.
  bool graph = false;
  // Blocks start and end on pages, for the cpu driver's debugging modes (cpu_device.h).
  bool page_aligned_blocks = false;
  bool trace_prediction = false;
};

// The device of a run, with budgets.
struct RunTarget {
  std::string name;  // "cpu", "cuda:0", "sim:titan-x"
  std::string why;   // for `auto`, for people: the GPU's name, or the reason why none can be driven
  bool simulated = false;
  std::optional<int> gpu;           // the ordinal of a GPU
  std::shared_ptr<GpuSystem> gpus;  // whose GPU it is; null: no GPU
  SimProfile profile;               // of the device, or of its substitute in predictions
  std::uint64_t budget_bytes = 0;
  std::uint64_t host_budget_bytes = 0;
  std::uint64_t library_bytes = 0;       // outside the pool: context, libraries, communicator
  std::uint64_t communicator_bytes = 0;  // part of library_bytes
  std::uint64_t reserve_bytes = 0;       // part of the GPU's free memory that is not in the budget
  int threads = 0;
};

struct PlannedRun {
  RunOptions options;
  RunTarget target;
  std::optional<Network> network;            // source of the tape; absent for a learned step
  std::shared_ptr<const OpCatalog> catalog;  // null without a network
  std::shared_ptr<OpLibrary> library;        // null where ops cannot run (sim, a learned step)
  std::shared_ptr<const Tape> tape;
  ProductPrecisions precisions;                     // permitted to algorithms
  EngineTiming engine_timing = EngineTiming::kOff;  // on a GPU
  std::shared_ptr<const EngineTrialReport> trials;  // of engines on a GPU; else null
  std::optional<MeasuredCosts> measured;  // source of the tape's costs and the link's rates, if measured
  Plan plan;
  Schedule schedule;
  Prediction prediction;
  // The smallest known peak of the policy. Static policies have only one peak, since placement does not
  // depend on the budget.
  std::uint64_t smallest_peak_bytes = 0;

  // The smallest budget in bytes, in whole granules, in which the policy runs: smallest_peak_bytes plus the
  // library's own memory. Algorithms are those of the run, or any if the policy chooses algorithms.
  std::uint64_t smallest_budget_bytes() const { return smallest_peak_bytes + target.library_bytes; }
  bool fits() const { return fits_in(target.budget_bytes); }
  // Whether this very plan fits into another device budget, in bytes.
  bool fits_in(std::uint64_t budget_bytes) const;
  // Throws InvalidArgument for a learned step, which only its own program can run.
  const Network& own_network() const;
  // Samples in one step of one device.
  std::int64_t batch() const;
  // The number of devices of one machine that train together.
  std::uint32_t devices() const { return options.training.ranks / options.machines; }
  // The precision of convolutions and of matrix products: the narrowest that any op of that kind uses.
  ProductPrecisions product_precisions() const;
  // Samples per update, over all devices and micro-steps.
  std::uint64_t global_batch() const;
  // The source of algorithms and their order: "onednn 2.6.3", "cudnn 9.19.0, timed", "profile FILE", or
  // "PyTorch 2.15.0 on cpu" of a learned step.
  std::string algorithms_source() const;
  // Identifies the runs to which measurements of this one apply. Throws as own_network() does. It does not
  // depend on whether engines were timed by default.
  MeasuredSetting measured_setting() const;
};

// Options of the data set `text` with the samples that the network reads. Throws InvalidArgument for networks
// whose targets are not one class per sample or per place.
DatasetOptions dataset_options(const Network& network, const std::string& text, std::uint64_t seed);

// The file that describes the device ("sim:FILE.json"); nothing for devices that the library knows by name.
std::optional<std::string> device_file(const std::string& device);
// The name of the device that `file` ("FILE.json") describes: "sim:FILE.json".
std::string file_device(const std::string& file);

// Plans a run. Without a policy it chooses `none` if that fits, otherwise `optimal`. Throws InvalidArgument
// for impossible options, and for options of networks together with a learned step. Throws DataError for a
// damaged profile, DeviceError for a GPU that cannot be driven, and OutOfMemory for a budget above the GPU's
// free memory. An insufficient budget is no error here: see fits().
PlannedRun plan_run(const RunOptions& options);
// Plans a run of the caller's own network; `options.model` and `options.step` are ignored.
PlannedRun plan_run(Network network, const RunOptions& options);

// Plans a run with a given schedule, for example from a file. Throws ScheduleError if the checker refuses it.
PlannedRun plan_run_with_schedule(const RunOptions& options,
                                  const std::function<Schedule(const Tape&)>& read);

// Returns the run with the same decisions, predicted with other costs. Throws InvalidArgument for costs of
// another run.
PlannedRun with_costs(PlannedRun run, const MeasuredCosts& costs);

struct ReplanOptions {
  // Allows policies that choose algorithms to choose others, whose results have other bits. Otherwise
  // algorithms are kept, and only the movement of bytes changes. Not allowed with
  // RunOptions::keep_algorithms.
  bool change_algorithms = false;
  // Replaces the policy in the run's options.
  std::optional<Policy> policy;
};
// Plans the run anew with its present costs, for the same network, device and budgets. As with plan_run(), a
// plan that does not fit is no error. Throws as plan_run() does.
PlannedRun replan_run(const PlannedRun& run, const ReplanOptions& options = {});

// A change of options that makes the run fit.
struct WayOut {
  std::vector<OptionSetting> settings;  // of RunOptions, to be made together
  std::string effect;                   // for people: "with a step of 40.1 ms"; may be empty
};

// Puts settings that belong together into words.
using SettingsInWords = std::function<std::string(std::span<const OptionSetting>)>;

// A budget that is insufficient for a run.
struct BudgetShortage {
  Policy policy = Policy::kOffloadNone;  // of the run
  std::string device;
  bool page_locked = false;         // RunOptions::host_memory_bytes is short; otherwise memory_bytes
  std::uint64_t needed_bytes = 0;   // the smallest budget that suffices
  std::uint64_t budget_bytes = 0;   // the budget that the run has
  bool is_default = false;          // the options specify no budget
  std::uint64_t reserve_bytes = 0;  // kept free beside a default budget
  std::string fullest_op;           // at which the most memory is in use; empty for page-locked memory
  std::vector<WayOut> ways_out;

  // Names the memory that is short, the missing bytes and the budget that would fit. Pass `in_words` to name
  // options differently.
  std::string text(const SettingsInWords& in_words) const;
};

// A planned run that does not fit. The text names options of RunOptions.
class DoesNotFit : public OutOfMemory {
 public:
  explicit DoesNotFit(BudgetShortage shortage);
  const BudgetShortage& budget_shortage() const { return shortage_; }

 private:
  BudgetShortage shortage_;
};

// Whether to search for other batches, policies and algorithms that fit, which needs up to ten plans.
enum class WaysOut : std::uint8_t { kUntold, kTold };

// The budget that is insufficient for the run. Nothing if the run fits.
std::optional<BudgetShortage> find_shortage(const PlannedRun& run, WaysOut ways_out);
// Throws DoesNotFit if the run does not fit.
void require_fit(const PlannedRun& run, WaysOut ways_out = WaysOut::kUntold);

// The ops, in order, whose algorithms differ from those of `none` with the same options. If there are any,
// results differ in bits from those of `none`. Empty unless the policy chooses algorithms. If engines of a
// GPU were timed for the policy, the network is lowered once more without their times.
std::vector<std::string> ops_with_other_algorithms(const PlannedRun& run);

// Plans the run anew under another policy and in another device budget (bytes, > 0), as plan_run() does, but
// without lowering the network again.
PlannedRun plan_again(const PlannedRun& run, Policy policy, std::uint64_t budget_bytes);
// Plans the run anew with other options of planning, for example without keeping algorithms.
PlannedRun plan_again(const PlannedRun& run, const PlanOptions& plan, std::uint64_t budget_bytes);

// The options of the run's prediction, for predictions that are compared to it.
PredictionOptions prediction_options(const PlannedRun& run);

// Predicts another policy on the same device in the same budgets.
Prediction predict_policy(const PlannedRun& run, const PlanOptions& plan);

// The time of a step of `none` with the fastest algorithms in unlimited memory, in seconds. In it, each input
// is loaded into the memory of the previous input, so a plan that hides the load of the next input can be
// faster.
double oracle_step_seconds(const PlannedRun& run);

// A lower bound in seconds on the step of any plan on this device in this budget (optimal_plan.h).
double lower_bound_step_seconds(const PlannedRun& run);

// Evaluation in the memory that training has left, with the parameters and the optimizer's state resident.
struct EvaluationPlan {
  std::int64_t batch = 0;  // divides the batch of training
  std::shared_ptr<const Tape> tape;
  Schedule schedule;
  std::uint64_t peak_bytes = 0;  // committed
};
// Plans evaluation for a run with a network. Its batch is the largest, found by halving, that commits at most
// `most_bytes` (absent: what training commits) and for which ops read the parameters in the layouts in which
// training stores them. Its ops use the algorithms of training if possible. Throws OutOfMemory if no batch
// fits, InvalidArgument if inference has other parameters than training.
EvaluationPlan plan_evaluation(const PlannedRun& run, std::optional<std::uint64_t> most_bytes = std::nullopt);

}  // namespace vdnn
