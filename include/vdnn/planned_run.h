#pragma once
// Everything that is decided before a run: network, tape, plan, schedule, and what it will take. `vdnn plan`
// prints it, `vdnn train` carries it out; both get it from here, so they cannot disagree.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "vdnn/dataset.h"
#include "vdnn/gpu_system.h"
#include "vdnn/learned_step.h"
#include "vdnn/measured_costs.h"
#include "vdnn/network.h"
#include "vdnn/op_library.h"
#include "vdnn/plan.h"
#include "vdnn/predictor.h"
#include "vdnn/schedule.h"
#include "vdnn/sim_device.h"
#include "vdnn/zoo.h"

namespace vdnn {

// 100 Gb/s, as InfiniBand EDR and 100-gigabit Ethernet have it; what NCCL counts on of one such port is 12.0.
inline constexpr double kNetworkBytesPerSecond = 12.5e9;
// A hop of a ring over the network in NCCL's own cost model (src/graph/tuning.cc, hwLat).
inline constexpr double kNetworkSeconds = 14e-6;

// Trials of engines take at most so long by default.
inline constexpr double kEngineTrialSeconds = 60;

// The file in which a user's times of engines are kept, for RunOptions::engine_cache, by the XDG base
// directory specification: vdnn/engine_timings.json in the folder `xdg_cache_home` (the variable
// XDG_CACHE_HOME) if that is an absolute path, else in .cache in the folder `home` (HOME). Nothing if neither
// names a folder. The values are arguments because the library reads no environment variables.
std::optional<std::filesystem::path> default_engine_cache(const std::optional<std::string>& xdg_cache_home,
                                                          const std::optional<std::string>& home);

struct RunOptions {
  ModelOptions model;
  // The learned step of a foreign program, in the place of a model: of `model` its batch alone counts. Such a
  // run can be planned and predicted, not carried out. Null: none.
  std::shared_ptr<const LearnedStep> step;
  // "auto" (the GPU with the most free memory; cpu where none can be driven, or not in this budget), "cpu",
  // "cuda:N", "sim:NAME", or "sim:FILE.json" with a device of one's own.
  std::string device = "auto";
  // Where `cuda:N` and `auto` look for GPUs. Null: make_gpu_system().
  std::shared_ptr<GpuSystem> gpus;
  // Of a GPU that is to be one of several ranks: what joining them takes of this device's memory, in bytes,
  // beside what context and libraries do (measure_communicator() in trainer.h, which all ranks call
  // together). Called while planning, once, on the planning thread, and kept in PlannedRun::options. Empty:
  // nothing is known of it.
  std::function<std::uint64_t(Device& device, int gpu)> communicator_bytes;
  // Device budget in bytes, > 0. Absent: the device's memory (a GPU: what is free but for a reserve; cpu:
  // half of the machine's, or of what the process's control group, as a container's, may take of it).
  std::optional<std::uint64_t> memory_bytes;
  // Of a GPU's default budget, see CudaDeviceOptions::reserve_bytes. Not beside memory_bytes.
  std::optional<std::uint64_t> gpu_reserve_bytes;
  // Budget for page-locked memory in bytes, > 0. Absent: half of the machine's memory, likewise.
  std::optional<std::uint64_t> host_memory_bytes;
  // Of the machine's devices, this one included, so many copy at once (> 0): what is known of roots that they
  // share (SimProfile) makes its link slower in predictions. Absent: those that train together.
  std::optional<std::uint64_t> link_shared_by;
  // The ranks of `training` are spread evenly over so many machines (> 0, a divisor of the ranks), in
  // predictions.
  std::uint32_t machines = 1;
  // Of a machine, each way at once, which its devices share (> 0); likewise.
  double network_bytes_per_second = kNetworkBytesPerSecond;
  // Compute threads of `cpu`. 0: all cores.
  int threads = 0;
  // Absent: auto, `none` where it fits, else `optimal`.
  std::optional<Policy> policy;
  AlgorithmPreference algorithms = AlgorithmPreference::kPerformance;
  std::optional<std::uint64_t> workspace_limit;
  // `dyn` and `optimal`, and so `auto`, keep the algorithms that `none` takes with the same options, in
  // whatever budget: results have its bits. Engines of GPUs are then timed for `engine_timings` alone. Beside
  // `recorded_algorithms` there is nothing left to keep.
  bool keep_algorithms = false;
  // True: convolutions and matrix products may round fp32 to TF32 first; refused where no algorithm does.
  // False: none may. Absent, that of `recorded_algorithms` where there are any; else, as in PyTorch,
  // convolutions may, on GPUs that have TF32, and matrix products may not.
  std::optional<bool> tf32;
  // Times of all engines are taken from this file, and what it lacks is timed, whatever the policy. For
  // `cuda:N`.
  std::optional<std::filesystem::path> engine_timings;
  // Absent that file, policies that choose algorithms (`dyn`, `optimal`) go by times, too, on `cuda:N` and
  // without a profile: those engines are timed that they could choose, and the times are kept in this file,
  // whose folder is made. default_engine_cache() is where the vdnn command keeps them. Absent: they are
  // forgotten with the run. Not where several ranks train together, whose times would differ.
  std::optional<std::filesystem::path> engine_cache;
  // Engines are timed for so many seconds at most, in the whole run (GpuOpsOptions::most_trial_seconds). 0:
  // engines are not timed, nor times looked up, unless `engine_timings` is given. Absent:
  // kEngineTrialSeconds, or unlimited with `engine_timings`. For `cuda:N`; elsewhere more than 0 is refused.
  std::optional<double> engine_trial_seconds;
  // Costs that were measured of this run on this device (measured_costs.h): in predictions, and in the choice
  // of algorithms.
  std::optional<std::filesystem::path> profile;
  // Told what people should know and no run fails for. May be empty.
  std::function<void(const std::string&)> warn;
  TrainingOptions training;
  // Op by op, by name: overrides `algorithms`, as a checkpoint has recorded them. Empty, or complete; or
  // complete of the same training with `sync_batch_normalization` the other way: the planned run's then have
  // what `algorithms` prefers for batch normalisation, and these for all else.
  std::map<std::string, std::string> recorded_algorithms;
  // Steps of training are graphs (executor.h); refused by sessions on devices that cannot capture them.
  bool graph = false;
  // Blocks start and end on pages, for the cpu driver's debugging modes (cpu_device.h).
  bool page_aligned_blocks = false;
  bool trace_prediction = false;
};

// A device as it will be used.
struct RunTarget {
  std::string name;  // "cpu", "cuda:0", "sim:titan-x"
  std::string why;   // of `auto`, for people: the GPU's name, or what is missing to drive one
  bool simulated = false;
  std::optional<int> gpu;           // the ordinal of a GPU
  std::shared_ptr<GpuSystem> gpus;  // whose GPU it is; null: no GPU
  SimProfile profile;               // of the device, or of what stands for it in predictions
  std::uint64_t budget_bytes = 0;
  std::uint64_t host_budget_bytes = 0;
  std::uint64_t library_bytes = 0;       // what is not the pool's: context, libraries, what joins ranks
  std::uint64_t communicator_bytes = 0;  // of that, what joins ranks
  std::uint64_t reserve_bytes = 0;       // kept back of what the GPU had free
  int threads = 0;
};

struct PlannedRun {
  RunOptions options;
  RunTarget target;
  std::optional<Network> network;            // that the tape is of; none: it is of RunOptions::step
  std::shared_ptr<const OpCatalog> catalog;  // null without a network
  std::shared_ptr<OpLibrary> library;        // null where nothing can be run (sim, a learned step)
  std::shared_ptr<const Tape> tape;
  ProductPrecisions precisions;                     // that algorithms may have
  EngineTiming engine_timing = EngineTiming::kOff;  // on a GPU
  std::shared_ptr<const EngineTrialReport> trials;  // of engines on a GPU; else null
  std::optional<MeasuredCosts> measured;  // what the tape's costs and the link's rates are from, if measured
  Plan plan;
  Schedule schedule;
  Prediction prediction;
  // The least peak that the policy was found to do with. Static policies have but one: placement does not
  // depend on the budget.
  std::uint64_t smallest_peak_bytes = 0;

  // The smallest budget, in whole granules, that the policy can run in with these algorithms (those that
  // choose for themselves: with any): that peak and the library's own memory.
  std::uint64_t smallest_budget_bytes() const { return smallest_peak_bytes + target.library_bytes; }
  bool fits() const;
  // Throws InvalidArgument for a learned step, which only its own program can run.
  const Network& own_network() const;
  // Samples that one device computes at once.
  std::int64_t batch() const;
  // Of a machine, that train together.
  std::uint32_t devices() const { return options.training.ranks / options.machines; }
  // The precision of convolutions and of matrix products: the narrowest that any op of that kind uses.
  ProductPrecisions product_precisions() const;
  // Samples an update, of all devices and micro-steps together.
  std::uint64_t global_batch() const;
  // Where algorithms and their order come from: "onednn 2.6.3", "cudnn 9.19.0, timed", "profile FILE", or
  // "PyTorch 2.15.0 on cpu" of a learned step.
  std::string algorithms_source() const;
  // Identifies what a measurement of this run applies to; throws as own_network() does. It does not depend on
  // whether engines were timed by default.
  MeasuredSetting measured_setting() const;
};

// The data set `text` as the network wants its samples. Throws InvalidArgument for a network that learns
// something else than one class a sample or one a place.
DatasetOptions dataset_options(const Network& network, const std::string& text, std::uint64_t seed);

// The file that a device is described in ("sim:FILE.json"); none where its name is that of a known one.
std::optional<std::string> device_file(const std::string& device);
// The other way: the device that `file` ("FILE.json") describes.
std::string file_device(const std::string& file);

// Decides. Throws InvalidArgument for options that cannot be (of a learned step, too, for options that only
// networks have), DataError for a profile that is none,
// DeviceError for a GPU that cannot be driven,
// OutOfMemory for a budget of more than it has free; a budget that does not suffice is no error here, see
// fits(). `--policy auto` settles on `none` where that fits, else on `optimal`.
PlannedRun plan_run(const RunOptions& options);
// The same for a network that is not the zoo's; `options.model` and `options.step` are not looked at.
PlannedRun plan_run(Network network, const RunOptions& options);

// The same run with the schedule given (from a file) instead of made. Throws ScheduleError where it is not
// right.
PlannedRun plan_run_with_schedule(const RunOptions& options,
                                  const std::function<Schedule(const Tape&)>& read);

// The same decisions, predicted with other costs. Throws InvalidArgument for costs that were measured of
// something else.
PlannedRun with_costs(PlannedRun run, const MeasuredCosts& costs);

struct ReplanOptions {
  // Algorithms may be chosen anew, where the policy chooses. Results are then those of other algorithms:
  // otherwise they are kept, and a plan moves bytes alone. Not beside RunOptions::keep_algorithms.
  bool change_algorithms = false;
  // In the place of the policy that the run was asked for.
  std::optional<Policy> policy;
};
// Decides anew, with the costs that the run has by now, for the same network, device and budgets. As with
// plan_run(), a plan that does not fit is no error. Throws as plan_run() does.
PlannedRun replan_run(const PlannedRun& run, const ReplanOptions& options = {});

// In whose terms an OutOfMemory speaks, and whether it names ways out: other batches, policies, algorithms.
enum class WaysOut : std::uint8_t {
  kUntold,         // in terms of RunOptions; the smallest budget alone
  kOptions,        // in terms of RunOptions
  kCommand,        // in terms of the command's options
  kCommandBudgets  // likewise, the smallest budget alone: all else is given, as by a schedule in a file
};

// Where the run does not fit: which budget is short by how much, the smallest that would do, and the ways out
// that were asked for, with figures. Finding those takes up to ten plans. Nothing where it fits.
std::optional<OutOfMemory> shortage(const PlannedRun& run, WaysOut ways_out);
// Throws it.
void require_fit(const PlannedRun& run, WaysOut ways_out = WaysOut::kUntold);

// The ops, in order, that have other algorithms than `none` takes with the same options: results then have
// other bits than those of `none`. Empty unless the policy chooses algorithms. Where engines of a GPU were
// timed for the policy, the network is lowered once more, without their times.
std::vector<std::string> ops_with_other_algorithms(const PlannedRun& run);

// The same run decided anew, under that policy and in that device budget (bytes, > 0): as plan_run() decides,
// without lowering the network again.
PlannedRun plan_again(const PlannedRun& run, Policy policy, std::uint64_t budget_bytes);

// How its schedule was predicted, and another one is that is to be compared to it.
PredictionOptions prediction_options(const PlannedRun& run);

// What another policy would take on the same device in the same budgets.
Prediction predict_policy(const PlannedRun& run, const PlanOptions& plan);

// Of a step of `none` with the fastest algorithms in unlimited memory. Its input is loaded into the place of
// the one before, so that a plan that hides the next input's load can be below it. Seconds.
double oracle_step_seconds(const PlannedRun& run);

// No plan can have a shorter step on that device in that budget (optimal_plan.h). Seconds.
double lower_bound_step_seconds(const PlannedRun& run);

// Of a run with a network: evaluation in the memory that training has left, the parameters and the
// optimizer's state resident. Its batch is the largest that takes no more memory than training does and wants
// the parameters as they are stored, found by halving. Its ops have the algorithms of training where they
// can. Throws OutOfMemory where there is none, InvalidArgument where inference has other parameters than
// training.
struct EvaluationPlan {
  std::int64_t batch = 0;  // divides the batch of training
  std::shared_ptr<const Tape> tape;
  Schedule schedule;
  std::uint64_t peak_bytes = 0;  // committed
};
EvaluationPlan plan_evaluation(const PlannedRun& run);

}  // namespace vdnn
