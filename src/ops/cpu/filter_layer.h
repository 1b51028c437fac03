#pragma once
// Layers with filters (src/ops/filter_layer.h) through oneDNN: three passes, and an opinion of each
// implementation on how the filter should lie in memory.
//
// The filter is stored in the layout that the first forward implementation asks for (padding included, which
// stays zero: oneDNN writes zeros there and an update of zeros by zeros makes zeros). An implementation that
// wants it otherwise gets a reorder through its workspace. Each pass offers oneDNN's implementations in
// oneDNN's order, then those that can also work on the stored layout itself ("@stored"), which need no copy.
//
// Over bf16 maps the forward and data passes read the filter's copy in bf16, which lies as the fp32 filter
// does, and the filter's gradient is made in fp32.

#include <functional>
#include <memory>
#include <string>

#include "src/ops/cpu/dnnl_support.h"
#include "src/ops/cpu/layer_ops.h"
#include "src/ops/cpu/primitive_sequence.h"
#include "src/ops/filter_layer.h"
#include "vdnn/op_catalog.h"

namespace vdnn::cpu {

// What tells one implementation of a pass from another: its name, and how it wants the filter or makes the
// filter's gradient.
struct ImplementationIdentity {
  std::string name;
  dnnl::memory::desc filter;
  friend bool operator==(const ImplementationIdentity&, const ImplementationIdentity&) = default;
};
ImplementationIdentity identity_of(const dnnl::primitive_desc& primitive, Direction direction);

// Shows every implementation of a pass over a filter (or a gradient of one) that lies so, in oneDNN's order,
// until `visit` has seen enough and says false. See passes_of() (filter_passes.h).
using VisitImplementation = std::function<bool(const dnnl::primitive_desc&)>;
using ForEachImplementation = std::function<void(Direction direction, const dnnl::memory::desc& filter,
                                                 const VisitImplementation& visit)>;

using ops::FilterShape;

// As operations want it: zero where there is no bias.
dnnl::memory::desc bias_desc(const FilterShape& shape);

struct FilterLayer {
  FilterShape shape;
  ForEachImplementation passes;
  // The fp32 filter in logical (KRSC) order and as it is stored, both in oneDNN's dimensions: where there are
  // groups, the first is the group.
  dnnl::memory::desc logical;
  dnnl::memory::desc storage;
};

// Has oneDNN an implementation of every pass that is neither a reference nor known to be wrong?
bool has_fast_passes(const FilterLayer& layer);

// Asks for the storage; throws InvalidArgument where oneDNN has no implementation.
FilterLayer make_filter_layer(FilterShape shape, ForEachImplementation passes);

LayerRecipe filter_layer_recipe(const Context& context, const FilterLayer& layer, Mode mode);
std::unique_ptr<CpuKernel> filter_layer_kernel(const Context& context, const FilterLayer& layer,
                                               const KernelRequest& request);

// The layers that are one. All throw InvalidArgument where the types are not what the spec makes.
FilterLayer filter_layer(const Context& context, const ConvolutionSpec& spec, const LayerTypes& types);
FilterLayer filter_layer(const Context& context, const TransposedConvolutionSpec& spec,
                         const LayerTypes& types);
FilterLayer filter_layer(const Context& context, const FullyConnectedSpec& spec, const LayerTypes& types);

}  // namespace vdnn::cpu
