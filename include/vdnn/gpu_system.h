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

#include "vdnn/cuda_device.h"
#include "vdnn/op_library.h"

namespace vdnn {

struct GpuOpsOptions {
  // Convolutions and matrix products may round their inputs to TF32 (ten bits of mantissa), which tensor
  // cores take. Algorithms that do are named so.
  bool tf32 = false;
  // A file of engines' times (docs/engine_timings.schema.json), made and extended as needed: the fastest
  // engine of a convolution is the first choice then. Empty: cuDNN's order stands.
  std::optional<std::filesystem::path> engine_timings;
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
