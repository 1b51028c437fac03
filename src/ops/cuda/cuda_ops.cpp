#include "src/ops/cuda/cuda_ops.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "src/ops/cuda/convolution_engines.h"
#include "src/ops/cuda/cuda_catalog.h"
#include "src/ops/cuda/filter_storage.h"
#include "src/ops/cuda/layer_ops.h"
#include "src/ops/cuda/step_numbers.h"
#include "streams/cuda/cuda_context.h"
#include "vdnn/cuda_ops.h"
#include "vdnn/error.h"

namespace vdnn {

namespace cuda {

namespace {

OpKernel compile(const Tape& tape, const Op& op, std::uint32_t algorithm, VendorLibrary& vendor) {
  if (algorithm >= op.algorithms.size()) {
    throw InvalidArgument("op '" + op.name + "' has " + std::to_string(op.algorithms.size()) +
                          " algorithms, not one of index " + std::to_string(algorithm));
  }
  const KernelRequest request{.tape = tape, .op = op, .algorithm = algorithm};
  return std::visit(
      [&](const auto& spec) -> OpKernel {
        if constexpr (std::is_same_v<std::decay_t<decltype(spec)>, AllReduceSpec>) {
          return {};  // the communicator runs it
        } else if constexpr (requires { make_kernel(spec, request, vendor); }) {
          return make_kernel(spec, request, vendor);
        } else if constexpr (requires { make_kernel(spec, request); }) {
          return make_kernel(spec, request);
        } else {
          throw InvalidArgument("op '" + op.name + "': cuda has no kernel for it");
        }
      },
      op.spec);
}

int gpu_of_thread() {
  int ordinal = 0;
  CudaContext context("cuda", make_cuda_api(), ordinal);
  context.check(context.api().get_device(ordinal), "cudaGetDevice");
  return ordinal;
}

class CudaProgram final : public OpProgram {
 public:
  CudaProgram(const Backends& backends, const Tape& tape, std::span<const std::uint32_t> algorithms)
      : backends_(backends), tape_(tape) {
    for (OpId id = 0; id < tape.ops().size(); ++id) {
      kernels_.push_back(compile(tape, tape.op(id), algorithms[id], *backends.vendor));
      if (const auto* const adam = std::get_if<AdamSpec>(&tape.op(id).spec)) {
        adam_ = *adam;
      }
    }
  }

  void run(OpId op, const OpOperands& operands, const StepScalars& scalars, void* native_stream) override {
    kernels_.at(op)(operands, scalars, Launcher(*backends_.kernels, native_stream));
  }

  std::string why_not_replay() const override {
    const auto custom = std::ranges::find_if(
        tape_.ops(), [](const Op& op) { return std::holds_alternative<CustomSpec>(op.spec); });
    return custom == tape_.ops().end()
               ? ""
               : "custom layer '" + custom->name + "' receives the numbers of the step by value";
  }
  void write_step_numbers(const StepScalars& scalars,
                          std::span<std::byte, kStepNumbersBytes> numbers) const override {
    const StepNumbers written{
        .scalars = scalars, .adam = adam_ ? ops::AdamCoefficients(*adam_, scalars) : ops::AdamCoefficients()};
    std::memcpy(numbers.data(), &written, sizeof(written));
  }

  void pack_parameter(std::uint32_t parameter, std::span<const float> logical, void* storage) override {
    pack(checked(parameter, logical.size_bytes()), logical, static_cast<float*>(storage));
  }
  void unpack_parameter(std::uint32_t parameter, const void* storage, std::span<float> logical) override {
    unpack(checked(parameter, logical.size_bytes()), static_cast<const float*>(storage), logical);
  }

 private:
  const ParameterRecipe& checked(std::uint32_t parameter, std::uint64_t bytes) const {
    if (parameter >= tape_.parameters().size() ||
        tape_.parameters()[parameter].recipe.type.bytes() != bytes) {
      throw InvalidArgument("there is no parameter " + std::to_string(parameter) + " of " +
                            std::to_string(bytes) + " bytes");
    }
    return tape_.parameters()[parameter].recipe;
  }

  Backends backends_;  // outlive the kernels
  const Tape& tape_;
  std::vector<OpKernel> kernels_;  // by op of the tape
  std::optional<AdamSpec> adam_;   // the optimizer of all updates, if it is Adam
};

class CudaOps final : public OpLibrary {
 public:
  explicit CudaOps(Backends backends)
      : backends_(std::move(backends)), catalog_(backends_.engines, backends_.precisions) {}

  const OpCatalog& catalog() const override { return catalog_; }

  std::unique_ptr<OpProgram> compile(const Tape& tape, std::span<const std::uint32_t> algorithms) override {
    if (algorithms.size() != tape.ops().size()) {
      throw InvalidArgument(std::to_string(algorithms.size()) + " algorithms for " +
                            std::to_string(tape.ops().size()) + " ops");
    }
    return std::make_unique<CudaProgram>(backends_, tape, algorithms);
  }

 private:
  Backends backends_;
  CudaCatalog catalog_;
};

}  // namespace

Backends make_cuda_backends() {
  std::unique_ptr<const KernelTable> kernels = make_kernel_table();
  const int ordinal = gpu_of_thread();
  // This call gives its cuDNN handle back (kept_handles.h), and the vendor library then uses the same handle.
  std::unique_ptr<const EngineSource> engines = engines_of_this_gpu(ordinal);
  return {.kernels = std::move(kernels),
          .vendor = make_vendor_library(ordinal),
          .engines = std::move(engines),
          .cudnn = cudnn_version(),
          .cudnn_frontend = cudnn_frontend_version()};
}

std::unique_ptr<OpLibrary> make_cuda_ops(Backends backends) {
  return std::make_unique<CudaOps>(std::move(backends));
}

}  // namespace cuda

std::unique_ptr<OpLibrary> make_cuda_ops() {
  return cuda::make_cuda_ops(cuda::make_cuda_backends());
}

}  // namespace vdnn
