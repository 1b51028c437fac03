#pragma once
// Layers without parameters of which oneDNN computes each pass by one primitive: pooling, upsampling, local
// response normalisation. What a forward primitive leaves for the backward one (its *workspace*, in oneDNN's
// words) is saved as bytes, since oneDNN alone knows what is in them.

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
  std::string saved;  // the name of what is saved, where anything is
  Cost cost;          // of a pass, apart from what is saved
};

// `make` makes the forward primitive of a kind. Training's serves inference as well, unless it saves
// something that inference has no place for: the same computation is then the same primitive in both.
template <class Make>
auto make_forward(Mode mode, const Make& make) {
  auto training = make(dnnl::prop_kind::forward_training);
  const bool saves = training.workspace_desc().get_size() > 0;
  return saves && mode == Mode::kInference ? make(dnnl::prop_kind::forward_inference) : training;
}

// Operands: forward reads X and writes Y and what is saved; backward reads dY, then X where it wants it, then
// what was saved, and writes dX.
LayerRecipe primitive_layer_recipe(const PrimitiveLayer& layer);

// What `request.op` was made in: an op of inference has nowhere to save anything.
Mode mode_of(const KernelRequest& request);
std::unique_ptr<CpuKernel> primitive_layer_kernel(const Context& context, const PrimitiveLayer& layer,
                                                  const KernelRequest& request);

}  // namespace vdnn::cpu
