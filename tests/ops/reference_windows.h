#pragma once
// Layers with filters or windows, and local response normalisation, in double precision; see reference.h.

#include <functional>
#include <span>
#include <vector>

#include "tests/ops/reference.h"
#include "vdnn/op_catalog.h"

namespace vdnn::reference {

struct Window {
  Dims kernel;
  Dims stride;
  Dims padding;
  Dims dilation;  // empty: 1 everywhere
};

Dims window_output(const Dims& input, std::int64_t channels, const Window& window);
Dims transposed_output(const Dims& input, std::int64_t channels, const Window& window);

// The elements of one multiplication of a filter layer: y[output] += x[input] filter[weight].
struct Product {
  std::size_t input = 0;
  std::size_t weight = 0;
  std::size_t output = 0;
};
// Visits the products of a convolution in a fixed order, those of one sample, filter and channel at a time.
// They are valid only during the visit. The number of groups is the channels of x divided by those of the
// filter.
void visit_products(const Dims& x, const Dims& filter, const Window& window,
                    const std::function<void(std::span<const Product>)>& visit);
std::vector<Product> convolution(const Dims& x, const Dims& filter, const Window& window);
std::vector<Product> transposed_convolution(const Dims& x, const Dims& filter, const Window& window);
std::vector<Product> fully_connected(const Dims& x, const Dims& weights);

// All results of a filter layer. `dy` has the output's shape; `bias` may be empty.
struct FilterPasses {
  Sums output;
  Sums input_gradient;
  Sums filter_gradient;
  Sums bias_gradient;
};
struct FilterOperands {
  const Array& x;
  const Array& filter;
  const Array& bias;
  const Array& dy;
};
FilterPasses filter_passes(const std::vector<Product>& products, const FilterOperands& operands);

// No window may have two largest elements.
Array max_pooling(const Array& x, const Window& window);
Sums max_pooling_backward(const Array& x, const Array& dy, const Window& window);
Sums average_pooling(const Array& x, const Window& window);
Sums average_pooling_backward(const Dims& x, const Array& dy, const Window& window);

Dims upsampling_output(const Dims& input, const Dims& factors);
Sums upsampling(const Array& x, const UpsamplingSpec& spec);
Sums upsampling_backward(const Dims& x, const Array& dy, const UpsamplingSpec& spec);

Sums lrn(const Array& x, const LrnSpec& spec);
Sums lrn_backward(const Array& x, const Array& dy, const LrnSpec& spec);

}  // namespace vdnn::reference
