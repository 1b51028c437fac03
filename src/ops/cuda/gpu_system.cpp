#include "src/ops/cuda/gpu_system.h"

#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "src/ops/cuda/tried_engines.h"
#include "src/ops/forwarding_program.h"
#include "streams/cuda/cuda_context.h"
#include "streams/cuda/cuda_device.h"
#include "streams/cuda/cuda_gpus.h"
#include "streams/cuda/uuid_text.h"

namespace vdnn {

namespace cuda {

namespace {

// Makes the GPU current in the calling thread while it destroys an object, since libraries free their
// resources there.
template <class Part>
class OnGpu {
 public:
  OnGpu(std::shared_ptr<CudaContext> context, std::unique_ptr<Part> part)
      : context_(std::move(context)), part_(std::move(part)) {}
  ~OnGpu() {
    const CudaContext::Scope scope = context_->enter_anyway();
    part_.reset();
  }
  OnGpu(const OnGpu&) = delete;
  OnGpu& operator=(const OnGpu&) = delete;

  Part* operator->() const { return part_.get(); }

 private:
  std::shared_ptr<CudaContext> context_;
  std::unique_ptr<Part> part_;
};

// A program whose run() uses the GPU that the driver has made current.
class GpuProgram final : public ops::ForwardingProgram {
 public:
  GpuProgram(std::shared_ptr<CudaContext> context, std::unique_ptr<OpProgram> program)
      : ForwardingProgram(*program), program_(std::move(context), std::move(program)) {}

 private:
  OnGpu<OpProgram> program_;
};

class GpuOps final : public OpLibrary {
 public:
  GpuOps(const std::shared_ptr<CudaContext>& context, std::unique_ptr<OpLibrary> library)
      : context_(context), library_(context, std::move(library)) {}

  const OpCatalog& catalog() const override { return library_->catalog(); }
  std::unique_ptr<OpProgram> compile(const Tape& tape, std::span<const std::uint32_t> algorithms) override {
    const CudaContext::Scope scope = context_->enter();
    return std::make_unique<GpuProgram>(context_, library_->compile(tape, algorithms));
  }

 private:
  std::shared_ptr<CudaContext> context_;
  OnGpu<OpLibrary> library_;
};

class TrialsOnGpu final : public EngineTrials {
 public:
  TrialsOnGpu(std::shared_ptr<CudaContext> context, std::unique_ptr<EngineTrials> trials)
      : context_(context), trials_(std::move(context), std::move(trials)) {}

  std::vector<EngineTrial> run(const EngineQuestion& question, std::span<const Engine> engines,
                               TrialKind kind, const std::function<bool()>& go_on) override {
    const CudaContext::Scope scope = context_->enter();
    return trials_->run(question, engines, kind, go_on);
  }

 private:
  std::shared_ptr<CudaContext> context_;
  OnGpu<EngineTrials> trials_;
};

class CudaGpus final : public GpuSystem {
 public:
  explicit CudaGpus(GpuParts parts) : parts_(std::move(parts)) {}

  int count() override {
    CudaContext context("cuda", parts_.api, 0);
    return require_gpus(context);
  }
  std::uint64_t free_bytes(int ordinal) override { return free_bytes_of_gpu(*context_of(ordinal)); }
  std::string gpu_name(int ordinal) override { return info_of(*context_of(ordinal), ordinal).name; }
  int compute_capability(int ordinal) override {
    return info_of(*context_of(ordinal), ordinal).compute_capability;
  }
  std::string gpu_uuid(int ordinal) override {
    return "GPU-" + uuid_text(info_of(*context_of(ordinal), ordinal).uuid);
  }
  std::unique_ptr<Device> make_device(const CudaDeviceOptions& options) override {
    CudaDeviceOptions measured = options;
    if (!measured.library_bytes) {
      measured.library_bytes = library_bytes(options.ordinal);
    }
    return make_cuda_device(measured, parts_.api);
  }
  std::shared_ptr<OpLibrary> make_ops(int ordinal, const GpuOpsOptions& options) override {
    const std::shared_ptr<CudaContext> context = context_of(ordinal);
    const CudaContext::Scope scope = context->enter();
    Backends backends = parts_.make_backends();
    backends.precisions = options.precisions;
    if (parts_.trials) {
      backends.engines = tried_engines(context, backends, options);
    }
    return std::make_shared<GpuOps>(context, parts_.make_ops(std::move(backends)));
  }

 private:
  std::shared_ptr<CudaContext> context_of(int ordinal) {
    auto context = std::make_shared<CudaContext>("cuda:" + std::to_string(ordinal), parts_.api, ordinal);
    require_gpu(*context);
    return context;
  }

  // Bytes that the libraries use. Measured once, so that planning and training have the same budget.
  std::uint64_t library_bytes(int ordinal) {
    const std::lock_guard lock(mutex_);
    if (const auto it = library_bytes_.find(ordinal); it != library_bytes_.end()) {
      return it->second;
    }
    std::shared_ptr<OpLibrary> library;  // kept until its memory is measured
    const std::uint64_t taken =
        bytes_taken_by(*context_of(ordinal), [&] { library = make_ops(ordinal, {}); });
    library_bytes_.emplace(ordinal, taken);
    return taken;
  }

  std::shared_ptr<const EngineSource> tried_engines(const std::shared_ptr<CudaContext>& context,
                                                    const Backends& backends, const GpuOpsOptions& options) {
    const auto warn = options.warn ? options.warn : [](const std::string&) {};
    const bool timed = options.engine_timing != EngineTiming::kOff;
    const TrialPlace place{.gpu = gpu_name(context->ordinal()),
                           .driver = driver_version_of(*context),
                           .cudnn = backends.cudnn,
                           .cudnn_frontend = backends.cudnn_frontend};
    return std::make_shared<TriedEngines>(
        TriedEnginesParts{.source = backends.engines,
                          .trials = trials_on(context, backends.vendor, options),
                          .timings = std::make_shared<EngineTimingsFile>(
                              timed ? options.engine_timings : std::nullopt, place, warn),
                          .warn = warn,
                          .report = options.trial_report},
        TriedEnginesOptions{.limits = training_limits(backends.precisions.convolutions),
                            .timing = options.engine_timing,
                            .most_seconds = options.most_trial_seconds});
  }

  std::shared_ptr<EngineTrials> trials_on(const std::shared_ptr<CudaContext>& context,
                                          std::shared_ptr<VendorLibrary> vendor,
                                          const GpuOpsOptions& options) {
    const auto make_device = [context, api = parts_.api, most = options.trial_bytes] {
      // The libraries have used some memory since `most` was computed. If less than `most` is free now, the
      // free memory is the budget.
      return make_cuda_device(
          {.ordinal = context->ordinal(), .budget_bytes = most, .library_bytes = 0, .least_budget_bytes = 0},
          api);
    };
    return std::make_shared<TrialsOnGpu>(context, make_device_trials(make_device, std::move(vendor)));
  }

  const GpuParts parts_;
  std::mutex mutex_;                            // guards the member below; locked during a measurement
  std::map<int, std::uint64_t> library_bytes_;  // by ordinal
};

}  // namespace

std::shared_ptr<GpuSystem> make_gpu_system(GpuParts parts) {
  return std::make_shared<CudaGpus>(std::move(parts));
}

}  // namespace cuda

std::shared_ptr<GpuSystem> make_gpu_system() {
  return cuda::make_gpu_system({.api = make_cuda_api(), .make_backends = cuda::make_cuda_backends});
}

int roomiest_gpu(GpuSystem& gpus) {
  const int count = gpus.count();
  if (count == 1) {
    return 0;  // no need to compare
  }
  int best = 0;
  std::uint64_t most = 0;
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    const std::uint64_t free = gpus.free_bytes(ordinal);
    if (ordinal == 0 || free > most) {
      best = ordinal;
      most = free;
    }
  }
  return best;
}

}  // namespace vdnn
