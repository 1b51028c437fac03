#pragma once
// Convolutions and fully connected layers are the same thing to a runtime: a filter and a bias applied to an
// input, three passes, and an opinion of each implementation on how the filter should lie in memory.
//
// The filter is stored in the layout that the first forward implementation asks for (padding included, which
// stays zero: oneDNN writes zeros there and an update of zeros by zeros makes zeros). An implementation that
// wants it otherwise gets a reorder through its workspace. Each pass offers oneDNN's implementations in
// oneDNN's order, then those that can also work on the stored layout itself ("@stored"), which need no copy.

#include <functional>
#include <memory>
#include <vector>

#include "src/ops/cpu/dnnl_support.h"
#include "src/ops/cpu/primitive_sequence.h"
#include "vdnn/op_catalog.h"

namespace vdnn::cpu {

// Shows every implementation of a pass over a filter (or a gradient of one) that lies so, in oneDNN's order,
// until `visit` has seen enough and says false.
using VisitImplementation = std::function<bool(const dnnl::primitive_desc&)>;
using ForEachImplementation =
    std::function<void(const dnnl::memory::desc& filter, const VisitImplementation& visit)>;

// One a pass.
struct Passes {
  ForEachImplementation forward;
  ForEachImplementation backward_data;
  ForEachImplementation backward_filter;
};

// One operation's implementations. oneDNN 2.6's iterator refers to the operation descriptor and to the
// forward hint that it was made from, so both have to live until the last next_impl().
template <class PrimitiveDesc, class OperationDesc, class... Hint>
void visit_implementations(const OperationDesc& operation, const dnnl::engine& engine,
                           const VisitImplementation& visit, const Hint&... hint) {
  const dnnl::primitive_attr attributes = scratchpad_attributes();
  PrimitiveDesc primitive(operation, attributes, engine, hint..., /*allow_empty=*/true);
  if (!primitive) {
    return;
  }
  while (visit(primitive) && primitive.next_impl()) {
  }
}

// A pass of a layer with this geometry.
template <class Geometry>
ForEachImplementation bind_pass(void (*visit_pass)(const Geometry&, const dnnl::engine&,
                                                   const dnnl::memory::desc&, const VisitImplementation&),
                                const Geometry& geometry, const dnnl::engine& engine) {
  return [visit_pass, geometry, engine](const dnnl::memory::desc& filter, const VisitImplementation& visit) {
    visit_pass(geometry, engine, filter, visit);
  };
}

struct FilterLayer {
  TensorType input;
  TensorType output;
  TensorType filter;  // logical: K, C, space
  TensorType bias;
  Passes passes;
  dnnl::memory::desc storage;  // of the filter
};

// Asks for the storage; throws InvalidArgument where oneDNN has no implementation.
FilterLayer make_filter_layer(const TensorType& input, const TensorType& output, Dims filter, Passes passes);

LayerRecipe filter_layer_recipe(const Context& context, const FilterLayer& layer, Mode mode);
std::unique_ptr<CpuKernel> filter_layer_kernel(const Context& context, const FilterLayer& layer,
                                               const KernelRequest& request);

}  // namespace vdnn::cpu
