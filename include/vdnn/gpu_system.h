#pragma once
// The GPUs of a machine, for planning and sessions: their number and properties, and the device and the
// library of layers of each. Tests replace it by a system of fake GPUs.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>

#include "vdnn/cost.h"
#include "vdnn/cuda_device.h"
#include "vdnn/op_library.h"

namespace vdnn {

// The engines of a convolution that are timed on the GPU. If all engines with enough memory for a trial are
// timed, they are offered fastest first, otherwise in the library's order.
enum class EngineTiming : std::uint8_t {
  kOff,
  kChoosable,  // engines that are the library's first choice under some limit on workspace; the same
               // engines are offered if none is timed
  kAll         // all permitted engines; engines that are worth choosing only by their times are offered, too
};

// Counts the trials of engines, and the time that they needed.
struct EngineTrialReport {
  std::uint64_t convolutions = 0;  // passes of convolutions with a tried engine
  std::uint64_t engines = 0;       // tried engines
  // Passes whose engines keep the library's order because a time limit, of this run or an earlier one, was
  // reached.
  std::uint64_t untimed = 0;
  double seconds = 0;  // of all trials, including those that only check results
};

struct GpuOpsOptions {
  // fp32 or TF32. TF32 permits algorithms that round their inputs to it, if the GPU has any; their names show
  // it.
  ProductPrecisions precisions;
  EngineTiming engine_timing = EngineTiming::kOff;
  // A file of engines' times (docs/engine_timings.schema.json), created and extended as needed. Empty: times
  // live as long as the library of layers. Unused if no engine is timed.
  std::optional<std::filesystem::path> engine_timings;
  // Time limit for trials, in seconds (> 0). After this time no further engine is timed; a trial that has
  // begun is completed. The results of engines are still checked, as they are if no engine is timed. A pass
  // of a convolution that stays untimed keeps the library's order. It also does so in later runs of the same
  // precision that use the same file, unless their time limit is higher.
  double most_trial_seconds = std::numeric_limits<double>::infinity();
  // Trials add to the counts of this report, and its seconds count towards most_trial_seconds. May be null.
  // The report is written on the thread that calls the catalog.
  std::shared_ptr<EngineTrialReport> trial_report;
  // Limit on device memory for trials of engines, in bytes; trials never use more than is free.
  std::uint64_t trial_bytes = std::numeric_limits<std::uint64_t>::max();
  // Called with warnings, for example about an engine that is not used or a file that is ignored. May be
  // empty.
  std::function<void(const std::string&)> warn;
};

// Thread-safe. Ordinals are CUDA's numbers of visible GPUs.
class GpuSystem {
 public:
  GpuSystem() = default;
  virtual ~GpuSystem() = default;
  GpuSystem(const GpuSystem&) = delete;
  GpuSystem& operator=(const GpuSystem&) = delete;

  // The number of GPUs, at least one. Throws DeviceError if the driver or the GPU is missing or too old.
  virtual int count() = 0;
  // Free memory in bytes. A GPU that the process does not use yet stays unused. Throws InvalidArgument for a
  // GPU that does not exist.
  virtual std::uint64_t free_bytes(int ordinal) = 0;
  // The product name: "NVIDIA H200".
  virtual std::string gpu_name(int ordinal) = 0;
  // 10 times the major number plus the minor: 80 for an A100, of the first generation with TF32.
  virtual int compute_capability(int ordinal) = 0;
  // The card's unique identifier as nvidia-smi -L prints it: "GPU-5a7b..." with 32 digits. It does not depend
  // on CUDA_VISIBLE_DEVICES. Parts of one card (MIG) share the card's identifier.
  virtual std::string gpu_uuid(int ordinal) = 0;
  // Makes the device as make_cuda_device() does. If the options do not specify the memory of context and
  // libraries, it is measured once, when the GPU's first device and its library of layers are created.
  virtual std::unique_ptr<Device> make_device(const CudaDeviceOptions& options) = 0;
  // Makes the library of layers for this GPU, as make_cuda_ops() does; usable from any thread. The library's
  // catalog offers only engines that have computed sampled elements of a convolution correctly on this GPU,
  // once per run or once per file of times.
  virtual std::shared_ptr<OpLibrary> make_ops(int ordinal, const GpuOpsOptions& options) = 0;
};

// The GPUs that CUDA sees on this machine. Throws DeviceError in a build without CUDA.
std::shared_ptr<GpuSystem> make_gpu_system();

// The ordinal of the GPU with the most free memory; of several, the first.
int roomiest_gpu(GpuSystem& gpus);

}  // namespace vdnn
