// Local response normalisation across channels, through cuDNN. Narrow maps are widened into the op's
// workspace, normalised there in fp32 and rounded: cuDNN casts alpha, beta and k to the type of the maps
// (cudnn_ops.h), and in bf16 only eight of their bits would remain.

#include <vector>

#include "src/ops/classic/layers.h"
#include "src/ops/cuda/conversions.h"
#include "src/ops/cuda/layer_ops.h"
#include "src/ops/cuda/vendor_kernel.h"
#include "src/ops/cuda/workspace.h"
#include "vdnn/error.h"

namespace vdnn::cuda {

namespace {

// The limits of cudnn_ops.h: CUDNN_LRN_MAX_N, CUDNN_LRN_MIN_K, CUDNN_LRN_MIN_BETA.
void require_limits_of_cudnn(const LrnSpec& spec) {
  constexpr std::int64_t kLargestSize = 16;
  constexpr float kSmallestK = 1e-5F;
  constexpr float kSmallestBeta = 0.01F;
  if (spec.size > kLargestSize || !(spec.k >= kSmallestK) || !(spec.beta >= kSmallestBeta)) {
    throw InvalidArgument("local response normalisation: size " + std::to_string(spec.size) + ", k " +
                          std::to_string(spec.k) + ", beta " + std::to_string(spec.beta) +
                          "; cuDNN requires a size of at most 16, k >= 1e-5 and beta >= 0.01");
  }
}

// Copies in fp32 of all maps of an op. All maps have the same shape.
struct WideMaps {
  std::vector<AddressRange> reads;
  AddressRange write;

  WideMaps(Workspace& workspace, std::size_t reads_count, std::uint64_t elements) {
    const auto take = [&] {
      const auto* const map = workspace.take<float>(elements);
      return AddressRange{.begin = reinterpret_cast<std::uint64_t>(map), .bytes = elements * sizeof(float)};
    };
    for (std::size_t i = 0; i < reads_count; ++i) {
      reads.push_back(take());
    }
    write = take();
  }
};

void count_wide_maps(OpRecipe& op, std::uint64_t elements) {
  op.algorithms[0].workspace_bytes = workspace_bytes<WideMaps>(op.reads.size(), elements);
}

OpKernel widened_kernel(std::unique_ptr<VendorOp> made, const TensorType& map, const KernelRequest& request) {
  const std::uint64_t elements = map.elements();
  return [op = within_algorithm(std::move(made), request), type = map.data_type, elements](
             const OpOperands& operands, const StepScalars&, const Launcher& launcher) {
    Workspace workspace(operands.workspace.begin);
    const WideMaps wide(workspace, operands.reads.size(), elements);
    for (std::size_t i = 0; i < wide.reads.size(); ++i) {
      launch_conversion(launcher, {type, operands.reads[i].begin}, {DataType::kF32, wide.reads[i].begin},
                        elements);
    }
    run_vendor_op(*op, wide.reads, wide.write, {.begin = operands.workspace.begin, .bytes = 0}, launcher);
    launch_conversion(launcher, {DataType::kF32, wide.write.begin}, {type, operands.writes[0].begin},
                      elements);
  };
}

}  // namespace

LayerRecipe make_recipe(const LrnSpec& spec, const LayerTypes& types, Mode mode) {
  ops::require_lrn(spec, types);
  require_limits_of_cudnn(spec);
  require_indices_of_cudnn("local response normalisation", types);
  LayerRecipe recipe = with_algorithm("cudnn", classic::make_recipe(spec, types, mode));
  if (is_narrow(types.inputs[0].data_type)) {
    for (std::vector<OpRecipe>* const pass : {&recipe.forward, &recipe.backward}) {
      for (OpRecipe& op : *pass) {
        count_wide_maps(op, types.inputs[0].elements());
      }
    }
  }
  return recipe;
}

OpKernel make_kernel(const LrnSpec& spec, const KernelRequest& request, VendorLibrary& library) {
  const TensorType& x = request.op.layer_inputs[0];
  std::unique_ptr<VendorOp> op = library.lrn({.spec = spec, .x = x.dims, .direction = request.op.direction});
  return is_narrow(x.data_type) ? widened_kernel(std::move(op), x, request)
                                : vendor_kernel(std::move(op), request);
}

}  // namespace vdnn::cuda
