// Pooling through cuDNN, in the type of the maps. The backward pass finds the maxima from X and Y.

#include "src/ops/classic/layers.h"
#include "src/ops/cuda/layer_ops.h"
#include "src/ops/cuda/vendor_kernel.h"

namespace vdnn::cuda {

namespace {

// cuDNN supports planes and volumes, so a line becomes a plane of one row.
PoolingProblem planar(PoolingProblem problem) {
  if (problem.x.size() == 3) {
    problem.x.insert(problem.x.begin() + 2, 1);
    problem.y.insert(problem.y.begin() + 2, 1);
    problem.spec.kernel.insert(problem.spec.kernel.begin(), 1);
    problem.spec.stride.insert(problem.spec.stride.begin(), 1);
    problem.spec.padding.insert(problem.spec.padding.begin(), 0);
  }
  return problem;
}

}  // namespace

LayerRecipe make_recipe(const PoolingSpec& spec, const LayerTypes& types, Mode mode) {
  ops::require_pooling(spec, types);
  require_indices_of_cudnn("pooling", types);
  return with_algorithm("cudnn", classic::make_recipe(spec, types, mode));
}

OpKernel make_kernel(const PoolingSpec& spec, const KernelRequest& request, VendorLibrary& library) {
  return vendor_kernel(library.pooling(planar({.spec = spec,
                                               .x = request.op.layer_inputs[0].dims,
                                               .y = request.op.layer_outputs[0].dims,
                                               .direction = request.op.direction,
                                               .elements = request.op.layer_inputs[0].data_type})),
                       request);
}

}  // namespace vdnn::cuda
