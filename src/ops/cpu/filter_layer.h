#pragma once
// Layers with filters (src/ops/filter_layer.h) through oneDNN. They have three passes, whose implementations
// in oneDNN prefer different layouts of the filter.
//
// The filter is stored in the layout of the first forward implementation. The stored filter includes padding,
// which stays zero: oneDNN writes zeros there, and updates keep them. For an implementation with another
// layout, the filter is reordered through the workspace. The algorithms of a pass are first oneDNN's
// implementations with the layouts that they prefer, in oneDNN's order. Then follow, with the suffix
// "@stored", implementations that work on the stored layout and need no copy.
//
// For bf16 maps, the forward and data passes read a copy of the filter in bf16, with the layout of the fp32
// filter. The filter's gradient is fp32.

#include <functional>
#include <memory>
#include <string>

#include "src/ops/cpu/dnnl_support.h"
#include "src/ops/cpu/layer_ops.h"
#include "src/ops/cpu/primitive_sequence.h"
#include "src/ops/filter_layer.h"
#include "vdnn/op_catalog.h"

namespace vdnn::cpu {

// The identity of an implementation of a pass: its name, and its layout of the filter or of the filter's
// gradient.
struct ImplementationIdentity {
  std::string name;
  dnnl::memory::desc filter;
  friend bool operator==(const ImplementationIdentity&, const ImplementationIdentity&) = default;
};
ImplementationIdentity identity_of(const dnnl::primitive_desc& primitive, Direction direction);

// Calls `visit` for every implementation of a pass that uses this layout of the filter or of its gradient, in
// oneDNN's order, until `visit` returns false. passes_of() (filter_passes.h) makes such functions.
using VisitImplementation = std::function<bool(const dnnl::primitive_desc&)>;
using ForEachImplementation = std::function<void(Direction direction, const dnnl::memory::desc& filter,
                                                 const VisitImplementation& visit)>;

using ops::FilterShape;

// The bias as oneDNN's operation descriptors expect it; a zero descriptor if the layer has no bias.
dnnl::memory::desc bias_desc(const FilterShape& shape);

struct FilterLayer {
  FilterShape shape;
  ForEachImplementation passes;
  // The fp32 filter in logical (KRSC) order and in stored order, both in oneDNN's dimensions. With groups,
  // the first dimension is the group.
  dnnl::memory::desc logical;
  dnnl::memory::desc storage;
};

// True if oneDNN has, for every pass, an implementation that is neither a reference nor known to be wrong.
bool has_fast_passes(const FilterLayer& layer);

// Fixes the stored layout. Throws InvalidArgument if oneDNN has no implementation.
FilterLayer make_filter_layer(FilterShape shape, ForEachImplementation passes);

LayerRecipe filter_layer_recipe(const Context& context, const FilterLayer& layer, Mode mode);
std::unique_ptr<CpuKernel> filter_layer_kernel(const Context& context, const FilterLayer& layer,
                                               const KernelRequest& request);

// These overloads throw InvalidArgument if the types do not fit the spec.
FilterLayer filter_layer(const Context& context, const ConvolutionSpec& spec, const LayerTypes& types);
FilterLayer filter_layer(const Context& context, const TransposedConvolutionSpec& spec,
                         const LayerTypes& types);
FilterLayer filter_layer(const Context& context, const FullyConnectedSpec& spec, const LayerTypes& types);

}  // namespace vdnn::cpu
