#include "tests/ops/reference_windows.h"

#include <algorithm>
#include <cmath>
#include <span>

namespace vdnn::reference {

namespace {

std::size_t size_of(const Dims& dims) {
  std::size_t size = 1;
  for (const std::int64_t extent : dims) {
    size *= static_cast<std::size_t>(extent);
  }
  return size;
}

Dims space_of(const Dims& dims) {
  return {dims.begin() + 2, dims.end()};
}

// Row-major coordinates of an index.
Dims coordinates(std::size_t index, const Dims& dims) {
  Dims result(dims.size());
  for (std::size_t axis = dims.size(); axis-- > 0;) {
    const auto extent = static_cast<std::size_t>(dims[axis]);
    result[axis] = static_cast<std::int64_t>(index % extent);
    index /= extent;
  }
  return result;
}

std::int64_t dilation_of(const Window& window, std::size_t axis) {
  return window.dilation.empty() ? 1 : window.dilation[axis];
}

// An element of a window that lies in the input and not in the padding. Positions are indices into the space
// of one channel.
struct Tap {
  std::size_t out = 0;
  std::size_t in = 0;
  std::size_t tap = 0;  // in the window
};

// The taps of every window, in order of the output.
std::vector<Tap> taps_of(const Dims& input, const Dims& output, const Window& window) {
  std::vector<Tap> taps;
  for (std::size_t out = 0; out < size_of(output); ++out) {
    const Dims at = coordinates(out, output);
    for (std::size_t tap = 0; tap < size_of(window.kernel); ++tap) {
      const Dims offset = coordinates(tap, window.kernel);
      std::size_t in = 0;
      bool inside = true;
      for (std::size_t axis = 0; axis < input.size(); ++axis) {
        const std::int64_t x =
            at[axis] * window.stride[axis] - window.padding[axis] + offset[axis] * dilation_of(window, axis);
        inside = inside && x >= 0 && x < input[axis];
        in = in * static_cast<std::size_t>(input[axis]) + static_cast<std::size_t>(x);
      }
      if (inside) {
        taps.push_back({.out = out, .in = in, .tap = tap});
      }
    }
  }
  return taps;
}

// Calls visit(element of x, element of y) for every element of every window of a pooling.
template <class Visit>
void for_each_pooled(const Dims& x, const Window& window, const Visit& visit) {
  const Dims y = window_output(x, x[1], window);
  const std::size_t x_space = size_of(space_of(x));
  const std::size_t y_space = size_of(space_of(y));
  const std::vector<Tap> taps = taps_of(space_of(x), space_of(y), window);
  for (std::size_t image = 0; image < static_cast<std::size_t>(x[0] * x[1]); ++image) {
    for (const Tap& each : taps) {
      visit(image * x_space + each.in, image * y_space + each.out);
    }
  }
}

// The channel of an element of an array.
std::size_t channel_of(std::size_t element, const Dims& dims) {
  return element / size_of(space_of(dims)) % static_cast<std::size_t>(dims[1]);
}

// The number of elements over which each window averages.
std::vector<std::int64_t> window_counts(const Dims& x, const Window& window) {
  std::vector<std::int64_t> counts(size_of(window_output(x, x[1], window)));
  for_each_pooled(x, window, [&](std::size_t, std::size_t out) { ++counts[out]; });
  return counts;
}

// The index in x of each window's maximum.
std::vector<std::size_t> largest_elements(const Array& x, const Window& window) {
  constexpr auto kNothing = static_cast<std::size_t>(-1);
  std::vector<std::size_t> largest(size_of(window_output(x.dims, x.dims[1], window)), kNothing);
  for_each_pooled(x.dims, window, [&](std::size_t in, std::size_t out) {
    if (largest[out] == kNothing || x.data[in] > x.data[largest[out]]) {
      largest[out] = in;
    }
  });
  return largest;
}

void add_terms(Sums& sums, std::int64_t more) {
  for (std::int64_t& terms : sums.terms) {
    terms += more;
  }
}

// An element of the input that contributes to an output.
struct Neighbour {
  std::size_t position = 0;
  double weight = 0;
};

// The neighbours along one dimension. The linear mode is a tent over the input's grid; positions beyond an
// edge count as the edge. The result includes a neighbour of weight 0 if the smallest error would give it a
// weight.
std::vector<Neighbour> neighbours_along(std::int64_t output, std::int64_t extent, std::int64_t factor,
                                        UpsamplingMode mode) {
  if (mode == UpsamplingMode::kNearest) {
    return {{static_cast<std::size_t>(output / factor), 1}};
  }
  const double centre = (static_cast<double>(output) + 0.5) / static_cast<double>(factor) - 0.5;
  const auto first = static_cast<std::int64_t>(std::ceil(centre)) - 1;
  const auto last = static_cast<std::int64_t>(std::floor(centre)) + 1;
  std::vector<Neighbour> neighbours;
  for (std::int64_t grid = first; grid <= last; ++grid) {
    const std::int64_t inside = std::clamp<std::int64_t>(grid, 0, extent - 1);
    neighbours.push_back(
        {static_cast<std::size_t>(inside), 1 - std::abs(centre - static_cast<double>(grid))});
  }
  return neighbours;
}

// The products of the weights of each dimension, for one position of the output's space.
std::vector<Neighbour> neighbours_of(const Dims& output, const Dims& space, const UpsamplingSpec& spec) {
  std::vector<Neighbour> all{{0, 1}};
  for (std::size_t axis = 0; axis < space.size(); ++axis) {
    std::vector<Neighbour> finer;
    for (const Neighbour& outer : all) {
      for (const Neighbour& inner :
           neighbours_along(output[axis], space[axis], spec.factors[axis], spec.mode)) {
        finer.push_back({outer.position * static_cast<std::size_t>(space[axis]) + inner.position,
                         outer.weight * inner.weight});
      }
    }
    all = std::move(finer);
  }
  return all;
}

// Calls visit(element of x, element of y, weight).
template <class Visit>
void for_each_neighbour(const Dims& x, const UpsamplingSpec& spec, const Visit& visit) {
  const Dims space = space_of(x);
  const Dims y_space = space_of(upsampling_output(x, spec.factors));
  const std::size_t x_size = size_of(space);
  const std::size_t y_size = size_of(y_space);
  for (std::size_t out = 0; out < y_size; ++out) {
    for (const Neighbour& neighbour : neighbours_of(coordinates(out, y_space), space, spec)) {
      for (std::size_t image = 0; image < static_cast<std::size_t>(x[0] * x[1]); ++image) {
        visit(image * x_size + neighbour.position, image * y_size + out, neighbour.weight);
      }
    }
  }
}

// A weight is computed from a coordinate's distance from the grid. The coordinate (o + 1/2) / factor - 1/2,
// at most the extent, has three roundings. The difference adds one, and 1 minus the difference another. These
// errors are absolute: a neighbour contributes them however small its weight is. Each dimension adds one
// product.
std::int64_t weight_roundings(const Dims& x, const UpsamplingSpec& spec) {
  std::int64_t roundings = 0;
  if (spec.mode == UpsamplingMode::kLinear) {
    for (const std::int64_t extent : space_of(x)) {
      roundings += 4 * extent + 3;
    }
  }
  return roundings;
}

void add_weighted(Sums& sums, std::size_t element, double value, double weight) {
  sums.value.data[element] += weight * value;
  sums.magnitude[element] += std::abs(value);
  ++sums.terms[element];
}

// k + alpha / size * sum of squares, for each element.
std::vector<double> lrn_norms(const Array& x, const LrnSpec& spec) {
  std::vector<double> norms(x.data.size(), static_cast<double>(spec.k));
  const auto scale = static_cast<double>(spec.alpha) / static_cast<double>(spec.size);
  const std::size_t space = size_of(space_of(x.dims));
  for (std::size_t i = 0; i < x.data.size(); ++i) {
    const auto channel = static_cast<std::int64_t>(channel_of(i, x.dims));
    for (std::int64_t other = channel - spec.size / 2; other <= channel + spec.size / 2; ++other) {
      if (other >= 0 && other < x.dims[1]) {
        const double neighbour =
            x.data[i + static_cast<std::size_t>(other) * space - static_cast<std::size_t>(channel) * space];
        norms[i] += scale * neighbour * neighbour;
      }
    }
  }
  return norms;
}

// A norm is the sum of k and `size` squares, none of them negative. Each term has the roundings of its
// square, of `size` sums and two of the factor alpha / size. The power -beta multiplies that error by beta.
// The power itself adds at most six roundings: two roots, two products and a quotient, or a power and a
// quotient.
double power_roundings(const LrnSpec& spec) {
  return std::abs(static_cast<double>(spec.beta)) * (static_cast<double>(spec.size) + 4) + 6;
}

std::int64_t whole(double roundings) {
  return static_cast<std::int64_t>(std::ceil(roundings));
}

}  // namespace

Dims window_output(const Dims& input, std::int64_t channels, const Window& window) {
  Dims output{input[0], channels};
  for (std::size_t axis = 0; axis < window.kernel.size(); ++axis) {
    const std::int64_t extent = dilation_of(window, axis) * (window.kernel[axis] - 1) + 1;
    output.push_back((input[axis + 2] + 2 * window.padding[axis] - extent) / window.stride[axis] + 1);
  }
  return output;
}

Dims transposed_output(const Dims& input, std::int64_t channels, const Window& window) {
  Dims output{input[0], channels};
  for (std::size_t axis = 0; axis < window.kernel.size(); ++axis) {
    output.push_back((input[axis + 2] - 1) * window.stride[axis] - 2 * window.padding[axis] +
                     window.kernel[axis]);
  }
  return output;
}

void visit_products(const Dims& x, const Dims& filter, const Window& window,
                    const std::function<void(std::span<const Product>)>& visit) {
  const Dims y = window_output(x, filter[0], window);
  const auto channels = static_cast<std::size_t>(x[1]);
  const auto filters = static_cast<std::size_t>(filter[0]);
  const auto group_channels = static_cast<std::size_t>(filter[1]);
  const std::size_t group_filters = filters / (channels / group_channels);
  const std::size_t x_space = size_of(space_of(x));
  const std::size_t y_space = size_of(space_of(y));
  const std::size_t window_size = size_of(window.kernel);
  const std::vector<Tap> taps = taps_of(space_of(x), space_of(y), window);
  std::vector<Product> products(taps.size());
  for (std::size_t n = 0; n < static_cast<std::size_t>(x[0]); ++n) {
    for (std::size_t k = 0; k < filters; ++k) {
      const std::size_t first_channel = k / group_filters * group_channels;
      for (std::size_t c = 0; c < group_channels; ++c) {
        std::ranges::transform(taps, products.begin(), [&](const Tap& each) {
          return Product{.input = (n * channels + first_channel + c) * x_space + each.in,
                         .weight = (k * group_channels + c) * window_size + each.tap,
                         .output = (n * filters + k) * y_space + each.out};
        });
        visit(products);
      }
    }
  }
}

std::vector<Product> convolution(const Dims& x, const Dims& filter, const Window& window) {
  std::vector<Product> all;
  visit_products(x, filter, window, [&](std::span<const Product> products) {
    all.insert(all.end(), products.begin(), products.end());
  });
  return all;
}

std::vector<Product> transposed_convolution(const Dims& x, const Dims& filter, const Window& window) {
  const Dims y = transposed_output(x, filter[0], window);
  const auto channels = static_cast<std::size_t>(x[1]);
  const auto filters = static_cast<std::size_t>(filter[0]);
  const std::size_t x_space = size_of(space_of(x));
  const std::size_t y_space = size_of(space_of(y));
  const std::size_t window_size = size_of(window.kernel);
  const std::vector<Tap> taps = taps_of(space_of(y), space_of(x), window);
  std::vector<Product> products;
  for (std::size_t n = 0; n < static_cast<std::size_t>(x[0]); ++n) {
    for (std::size_t k = 0; k < filters; ++k) {
      for (std::size_t c = 0; c < channels; ++c) {
        // Each input contributes to one window of the output.
        for (const Tap& each : taps) {
          products.push_back({.input = (n * channels + c) * x_space + each.out,
                              .weight = (k * channels + c) * window_size + each.tap,
                              .output = (n * filters + k) * y_space + each.in});
        }
      }
    }
  }
  return products;
}

std::vector<Product> fully_connected(const Dims& x, const Dims& weights) {
  const auto outputs = static_cast<std::size_t>(weights[0]);
  const std::size_t inputs = size_of(weights) / outputs;
  std::vector<Product> products;
  for (std::size_t n = 0; n < static_cast<std::size_t>(x[0]); ++n) {
    for (std::size_t k = 0; k < outputs; ++k) {
      for (std::size_t i = 0; i < inputs; ++i) {
        products.push_back({.input = n * inputs + i, .weight = k * inputs + i, .output = n * outputs + k});
      }
    }
  }
  return products;
}

FilterPasses filter_passes(const std::vector<Product>& products, const FilterOperands& operands) {
  const auto& [x, filter, bias, dy] = operands;
  FilterPasses passes{.output = Sums(dy.dims),
                      .input_gradient = Sums(x.dims),
                      .filter_gradient = Sums(filter.dims),
                      .bias_gradient = Sums(bias.dims)};
  for (const Product& each : products) {
    passes.output.add(each.output, x.data[each.input] * filter.data[each.weight]);
    passes.input_gradient.add(each.input, dy.data[each.output] * filter.data[each.weight]);
    passes.filter_gradient.add(each.weight, dy.data[each.output] * x.data[each.input]);
  }
  if (!bias.dims.empty()) {
    for (std::size_t i = 0; i < dy.data.size(); ++i) {
      const std::size_t channel = channel_of(i, dy.dims);
      passes.output.add(i, bias.data[channel]);
      passes.bias_gradient.add(channel, dy.data[i]);
    }
  }
  return passes;
}

Array max_pooling(const Array& x, const Window& window) {
  Array y(window_output(x.dims, x.dims[1], window));
  std::ranges::transform(largest_elements(x, window), y.data.begin(),
                         [&x](std::size_t in) { return x.data[in]; });
  return y;
}

Sums max_pooling_backward(const Array& x, const Array& dy, const Window& window) {
  Sums dx(x.dims);
  const std::vector<std::size_t> largest = largest_elements(x, window);
  for (std::size_t out = 0; out < largest.size(); ++out) {
    dx.add(largest[out], dy.data[out]);
  }
  return dx;
}

// The division, or the reciprocal and its product, adds up to two roundings. They count as two terms of value
// zero.
Sums average_pooling(const Array& x, const Window& window) {
  const std::vector<std::int64_t> counts = window_counts(x.dims, window);
  Sums y(window_output(x.dims, x.dims[1], window));
  for_each_pooled(x.dims, window, [&](std::size_t in, std::size_t out) {
    y.add(out, x.data[in] / static_cast<double>(counts[out]));
  });
  add_terms(y, 2);
  return y;
}

Sums average_pooling_backward(const Dims& x, const Array& dy, const Window& window) {
  const std::vector<std::int64_t> counts = window_counts(x, window);
  Sums dx(x);
  for_each_pooled(x, window, [&](std::size_t in, std::size_t out) {
    dx.add(in, dy.data[out] / static_cast<double>(counts[out]));
  });
  add_terms(dx, 2);
  return dx;
}

Dims upsampling_output(const Dims& input, const Dims& factors) {
  Dims output = input;
  for (std::size_t axis = 0; axis < factors.size(); ++axis) {
    output[axis + 2] *= factors[axis];
  }
  return output;
}

Sums upsampling(const Array& x, const UpsamplingSpec& spec) {
  Sums y(upsampling_output(x.dims, spec.factors));
  for_each_neighbour(x.dims, spec, [&](std::size_t in, std::size_t out, double weight) {
    add_weighted(y, out, x.data[in], weight);
  });
  add_terms(y, weight_roundings(x.dims, spec));
  return y;
}

Sums upsampling_backward(const Dims& x, const Array& dy, const UpsamplingSpec& spec) {
  Sums dx(x);
  for_each_neighbour(x, spec, [&](std::size_t in, std::size_t out, double weight) {
    add_weighted(dx, in, dy.data[out], weight);
  });
  add_terms(dx, weight_roundings(x, spec));
  return dx;
}

Sums lrn(const Array& x, const LrnSpec& spec) {
  Sums y(x.dims);
  const std::vector<double> norms = lrn_norms(x, spec);
  for (std::size_t i = 0; i < x.data.size(); ++i) {
    y.add(i, x.data[i] * std::pow(norms[i], -static_cast<double>(spec.beta)));
  }
  add_terms(y, whole(power_roundings(spec)));
  return y;
}

// With b = norm ^ -beta: dx_i = b_i dy_i - 2 alpha beta / size x_i sum over j of dy_j x_j b_j / norm_j, with
// j the channels around i. A term of the sum has the roundings of b, those of the norm (as many as b has at
// beta = 1), and eight of its products and quotients.
Sums lrn_backward(const Array& x, const Array& dy, const LrnSpec& spec) {
  Sums dx(x.dims);
  const std::vector<double> norms = lrn_norms(x, spec);
  const auto beta = static_cast<double>(spec.beta);
  const double scale = 2 * static_cast<double>(spec.alpha) * beta / static_cast<double>(spec.size);
  const std::size_t space = size_of(space_of(x.dims));
  for (std::size_t i = 0; i < x.data.size(); ++i) {
    dx.add(i, dy.data[i] * std::pow(norms[i], -beta));
    const auto channel = static_cast<std::int64_t>(channel_of(i, x.dims));
    for (std::int64_t other = channel - spec.size / 2; other <= channel + spec.size / 2; ++other) {
      if (other >= 0 && other < x.dims[1]) {
        const std::size_t j =
            i + static_cast<std::size_t>(other) * space - static_cast<std::size_t>(channel) * space;
        dx.add(i, -scale * x.data[i] * dy.data[j] * x.data[j] * std::pow(norms[j], -beta - 1));
      }
    }
  }
  add_terms(dx, whole(power_roundings(spec) + static_cast<double>(spec.size) + 4 + 8));
  return dx;
}

}  // namespace vdnn::reference
