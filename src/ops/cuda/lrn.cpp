// Local response normalisation across channels, through cuDNN.

#include "src/ops/classic/layers.h"
#include "src/ops/cuda/layer_ops.h"
#include "src/ops/cuda/vendor_kernel.h"
#include "vdnn/error.h"

namespace vdnn::cuda {

namespace {

// cudnn_ops.h: CUDNN_LRN_MAX_N, CUDNN_LRN_MIN_K, CUDNN_LRN_MIN_BETA.
void require_limits_of_cudnn(const LrnSpec& spec) {
  constexpr std::int64_t kLargestSize = 16;
  constexpr float kSmallestK = 1e-5F;
  constexpr float kSmallestBeta = 0.01F;
  if (spec.size > kLargestSize || !(spec.k >= kSmallestK) || !(spec.beta >= kSmallestBeta)) {
    throw InvalidArgument("local response normalisation: size " + std::to_string(spec.size) + ", k " +
                          std::to_string(spec.k) + ", beta " + std::to_string(spec.beta) +
                          "; cuDNN wants at most 16, at least 1e-5 and at least 0.01");
  }
}

}  // namespace

LayerRecipe make_recipe(const LrnSpec& spec, const LayerTypes& types, Mode mode) {
  ops::require_lrn(spec, types);
  require_limits_of_cudnn(spec);
  require_indices_of_cudnn("local response normalisation", types);
  return with_algorithm("cudnn", classic::make_recipe(spec, types, mode));
}

OpKernel make_kernel(const LrnSpec& spec, const KernelRequest& request, VendorLibrary& library) {
  return vendor_kernel(
      library.lrn({.spec = spec, .x = request.op.layer_inputs[0].dims, .direction = request.op.direction}),
      request);
}

}  // namespace vdnn::cuda
