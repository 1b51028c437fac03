#pragma once
// Queries oneDNN for the implementations of the passes of layers with filters. Each kind of layer defines an
// *operation*: the primitives of its three passes and, for each primitive, its descriptor for a filter of a
// given layout. All other code is the same for all kinds.

#include <algorithm>
#include <dnnl.hpp>
#include <vector>

#include "src/ops/cpu/filter_layer.h"
#include "vdnn/error.h"

namespace vdnn::cpu {

// Returns the implementations in the order of oneDNN's iterator, some possibly twice; see
// visit_implementations(). The iterator refers to its operation descriptor and its forward hint, so both must
// live until the last next_impl().
template <class PrimitiveDesc, class OperationDesc, class... Hint>
std::vector<dnnl::primitive_desc> implementations_with(const dnnl::primitive_attr& attributes,
                                                       const OperationDesc& operation,
                                                       const dnnl::engine& engine, const Hint&... hint) {
  std::vector<dnnl::primitive_desc> result;
  PrimitiveDesc primitive(operation, attributes, engine, hint..., /*allow_empty=*/true);
  if (!primitive) {
    return result;
  }
  do {
    result.push_back(primitive);
  } while (primitive.next_impl());
  return result;
}

// Visits implementations in an order that does not depend on earlier runs. The order of oneDNN's iterator
// (2.6, primitive_iterator.hpp) depends on its cache of primitives. The iterator returns cached
// implementations without advancing, so it returns the following implementations late or twice. So the order
// is queried with attributes that no kernel uses, for which nothing is cached.
template <class PrimitiveDesc, class OperationDesc, class... Hint>
void visit_implementations(Direction direction, const OperationDesc& operation, const dnnl::engine& engine,
                           const VisitImplementation& visit, const Hint&... hint) {
  const auto usable =
      implementations_with<PrimitiveDesc>(scratchpad_attributes(), operation, engine, hint...);
  for (const dnnl::primitive_desc& next :
       implementations_with<PrimitiveDesc>(dnnl::primitive_attr(), operation, engine, hint...)) {
    const auto found = std::ranges::find_if(usable, [&](const dnnl::primitive_desc& candidate) {
      return identity_of(candidate, direction) == identity_of(next, direction);
    });
    if (found != usable.end() && !visit(*found)) {
      return;
    }
  }
}

template <class Operation>
ForEachImplementation passes_of(const Operation& operation, const dnnl::engine& engine) {
  return [operation, engine](Direction direction, const dnnl::memory::desc& filter,
                             const VisitImplementation& visit) {
    using Forward = typename Operation::Forward::primitive_desc;
    if (direction == Direction::kForward) {
      visit_implementations<Forward>(direction, operation.forward(filter), engine, visit);
      return;
    }
    // oneDNN needs the forward primitive as a hint for the backward passes.
    const Forward hint(operation.forward(any_desc(filter, operation.input.data_type())),
                       scratchpad_attributes(), engine,
                       /*allow_empty=*/true);
    if (direction == Direction::kBackwardData) {
      visit_implementations<typename Operation::BackwardData::primitive_desc>(
          direction, operation.backward_data(filter), engine, visit, hint);
    } else if (direction == Direction::kBackwardFilter) {
      visit_implementations<typename Operation::BackwardFilter::primitive_desc>(
          direction, operation.backward_filter(filter), engine, visit, hint);
    } else {
      throw InvalidArgument("a layer has no update pass");
    }
  };
}

// The operation of convolutions and transposed convolutions.
template <class ForwardPrimitive, class BackwardDataPrimitive, class BackwardFilterPrimitive>
struct WindowOperation {
  using Forward = ForwardPrimitive;
  using BackwardData = BackwardDataPrimitive;
  using BackwardFilter = BackwardFilterPrimitive;

  dnnl::algorithm algorithm;
  dnnl::memory::desc input;
  dnnl::memory::desc bias;  // a zero descriptor if there is no bias
  dnnl::memory::desc output;
  dnnl::memory::dims stride;
  dnnl::memory::dims dilation;  // as oneDNN counts it, from 0
  dnnl::memory::dims padding;

  typename Forward::desc forward(const dnnl::memory::desc& filter) const {
    return {dnnl::prop_kind::forward_training,
            algorithm,
            input,
            filter,
            bias,
            output,
            stride,
            dilation,
            padding,
            padding};
  }
  typename BackwardData::desc backward_data(const dnnl::memory::desc& filter) const {
    return {algorithm, input, filter, output, stride, dilation, padding, padding};
  }
  typename BackwardFilter::desc backward_filter(const dnnl::memory::desc& filter) const {
    return {algorithm, input, filter, bias, output, stride, dilation, padding, padding};
  }
};

}  // namespace vdnn::cpu
