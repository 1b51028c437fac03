#pragma once
// The GPUs of a machine as planning and sessions ask for them: which there are, and of one its driver and the
// mathematics of its layers. Tests put GPUs in its place that are not there.

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

// Which engines of a convolution are timed on the GPU. If all of them are that have room for a trial, they
// are offered fastest first, otherwise in the library's order.
enum class EngineTiming : std::uint8_t {
  kOff,
  kChoosable,  // those that some limit on workspace makes the first choice in the library's order: the same
               // that are offered without times
  kAll         // all that are permitted; those that are a choice by their times alone are offered, too
};

// Counts the trials of engines, and the time that they needed.
struct EngineTrialReport {
  std::uint64_t convolutions = 0;  // passes of convolutions of which an engine was tried
  std::uint64_t engines = 0;       // tried
  std::uint64_t untimed = 0;  // passes left in the library's order since time was up, in earlier runs too
  double seconds = 0;         // of all trials, of results alone too
};

struct GpuOpsOptions {
  // fp32 or TF32. TF32 permits algorithms that round their inputs to it, where the GPU has any; they are
  // named so.
  ProductPrecisions precisions;
  EngineTiming engine_timing = EngineTiming::kOff;
  // A file of engines' times (docs/engine_timings.schema.json), made and extended as needed. Empty: what is
  // found out lives as long as the library of layers. Not looked at where no engine is timed.
  std::optional<std::filesystem::path> engine_timings;
  // Time limit for trials, in seconds (> 0). After it, no further engine is timed; a trial that has begun
  // ends. The results of engines are still checked, as without times. A pass of a convolution that stays
  // untimed keeps the library's order. It also does so in later runs of the same precision that use the same
  // file, unless their limit is higher.
  double most_trial_seconds = std::numeric_limits<double>::infinity();
  // Where to count trials, and from where on: seconds that are in it are part of most_trial_seconds. May be
  // null; written by the thread that asks the catalog.
  std::shared_ptr<EngineTrialReport> trial_report;
  // Device memory for trials of engines, in bytes; what is free where that is less.
  std::uint64_t trial_bytes = std::numeric_limits<std::uint64_t>::max();
  // Told what no run fails for: an engine that is not used, a file that is passed over. May be empty.
  std::function<void(const std::string&)> warn;
};

// Thread-safe. Ordinals as CUDA counts the GPUs that it can see.
class GpuSystem {
 public:
  GpuSystem() = default;
  virtual ~GpuSystem() = default;
  GpuSystem(const GpuSystem&) = delete;
  GpuSystem& operator=(const GpuSystem&) = delete;

  // At least one. Throws DeviceError that says whether the driver or the GPU is missing, or what is too old.
  virtual int count() = 0;
  // Bytes. A GPU that the process does not use yet is left as it was. InvalidArgument where there is no such
  // GPU.
  virtual std::uint64_t free_bytes(int ordinal) = 0;
  // As its maker calls it: "NVIDIA H200".
  virtual std::string gpu_name(int ordinal) = 0;
  // 10 times its major number and its minor: 80 for an A100, the first generation that has TF32.
  virtual int compute_capability(int ordinal) = 0;
  // Its card's, which no other has, whatever CUDA_VISIBLE_DEVICES makes of ordinals, as nvidia-smi -L prints
  // it: "GPU-5a7b..." with 32 digits. Parts of one card (MIG) have the same.
  virtual std::string gpu_uuid(int ordinal) = 0;
  // As make_cuda_device(). Unless the options say what context and libraries take, that is what they took
  // when the first device of that GPU was made, with the mathematics of its layers.
  virtual std::unique_ptr<Device> make_device(const CudaDeviceOptions& options) = 0;
  // As make_cuda_ops(), for this GPU; compiles and gives back from any thread. An engine that its catalog
  // offers has computed sampled elements of a convolution rightly on this GPU: once a run, or once a file
  // where there is one for times.
  virtual std::shared_ptr<OpLibrary> make_ops(int ordinal, const GpuOpsOptions& options) = 0;
};

// Those that CUDA has here. Throws DeviceError in a build without CUDA.
std::shared_ptr<GpuSystem> make_gpu_system();

// The one with the most free memory, the first of several.
int roomiest_gpu(GpuSystem& gpus);

}  // namespace vdnn
