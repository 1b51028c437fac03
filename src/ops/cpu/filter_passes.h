#pragma once
// How the layers with filters ask oneDNN for the implementations of their passes. Such a layer describes an
// *operation*: three of oneDNN's primitives and, for each, its descriptor over a filter that lies as asked.
// Everything else is the same for all of them.

#include <dnnl.hpp>

#include "src/ops/cpu/filter_layer.h"
#include "vdnn/error.h"

namespace vdnn::cpu {

// oneDNN 2.6's iterator refers to the operation descriptor and to the forward hint that it was made from, so
// both have to live until the last next_impl().
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

template <class Operation>
ForEachImplementation passes_of(const Operation& operation, const dnnl::engine& engine) {
  return [operation, engine](Direction direction, const dnnl::memory::desc& filter,
                             const VisitImplementation& visit) {
    using Forward = typename Operation::Forward::primitive_desc;
    if (direction == Direction::kForward) {
      visit_implementations<Forward>(operation.forward(filter), engine, visit);
      return;
    }
    // What the backward passes want to know of the forward pass.
    const Forward hint(operation.forward(any_desc(filter.dims())), scratchpad_attributes(), engine,
                       /*allow_empty=*/true);
    if (direction == Direction::kBackwardData) {
      visit_implementations<typename Operation::BackwardData::primitive_desc>(operation.backward_data(filter),
                                                                              engine, visit, hint);
    } else if (direction == Direction::kBackwardFilter) {
      visit_implementations<typename Operation::BackwardFilter::primitive_desc>(
          operation.backward_filter(filter), engine, visit, hint);
    } else {
      throw InvalidArgument("a layer has no update pass");
    }
  };
}

// Convolutions and transposed convolutions.
template <class ForwardPrimitive, class BackwardDataPrimitive, class BackwardFilterPrimitive>
struct WindowOperation {
  using Forward = ForwardPrimitive;
  using BackwardData = BackwardDataPrimitive;
  using BackwardFilter = BackwardFilterPrimitive;

  dnnl::algorithm algorithm;
  dnnl::memory::desc input;
  dnnl::memory::desc bias;  // zero where there is none
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
