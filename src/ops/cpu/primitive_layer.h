#pragma once
// Layers without parameters for which one oneDNN primitive computes each pass: pooling, upsampling and local
// response normalisation. A forward primitive may write data for the backward primitive; oneDNN calls these
// data a *workspace*. They are saved as bytes, since only oneDNN knows their format.

#include <dnnl.hpp>
#include <memory>
#include <string>

#include "src/ops/cpu/layer_ops.h"
#include "src/ops/cpu/primitive_sequence.h"

namespace vdnn::cpu {

struct PrimitiveLayer {
  dnnl::memory::desc input;
  dnnl::memory::desc output;
  dnnl::primitive_desc_base forward;
  dnnl::primitive_desc_base backward;  // empty in inference
  bool backward_reads_input = false;
  std::string saved;  // name of the saved value, if there is one
  Cost cost;          // of a pass, without the saved value
};

// `make` creates the forward primitive of a kind. If training's primitive saves no value, inference uses it,
// too, so that both compute the same result. Otherwise inference has its own primitive, since it has no
// memory for a saved value.
template <class Make>
auto make_forward(Mode mode, const Make& make) {
  auto training = make(dnnl::prop_kind::forward_training);
  const bool saves = training.workspace_desc().get_size() > 0;
  return saves && mode == Mode::kInference ? make(dnnl::prop_kind::forward_inference) : training;
}

// Operands: forward reads X and writes Y and the saved value; backward reads dY, then X if
// `backward_reads_input`, then the saved value, and writes dX.
LayerRecipe primitive_layer_recipe(const PrimitiveLayer& layer);

// The mode of `request.op`: training if the op has memory for a saved value.
Mode mode_of(const KernelRequest& request);
std::unique_ptr<CpuKernel> primitive_layer_kernel(const Context& context, const PrimitiveLayer& layer,
                                                  const KernelRequest& request);

}  // namespace vdnn::cpu
