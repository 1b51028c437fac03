#include "tests/ops/reference.h"

#include <algorithm>
#include <cmath>

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

// visit(position in the output, position in the input, position in the window) for every element of every
// window that lies in the input and not in the padding. Positions are indices into the space of one channel.
template <class Visit>
void for_each_tap(const Dims& input, const Dims& output, const Window& window, const Visit& visit) {
  for (std::size_t out = 0; out < size_of(output); ++out) {
    const Dims at = coordinates(out, output);
    for (std::size_t tap = 0; tap < size_of(window.kernel); ++tap) {
      const Dims offset = coordinates(tap, window.kernel);
      std::size_t in = 0;
      bool inside = true;
      for (std::size_t axis = 0; axis < input.size(); ++axis) {
        const std::int64_t x = at[axis] * window.stride[axis] - window.padding[axis] + offset[axis];
        inside = inside && x >= 0 && x < input[axis];
        in = in * static_cast<std::size_t>(input[axis]) + static_cast<std::size_t>(x);
      }
      if (inside) {
        visit(out, in, tap);
      }
    }
  }
}

// visit(element of x, element of the filter, element of y) for every multiplication of a convolution.
template <class Visit>
void for_each_product(const Dims& x, const Dims& filter, const Window& window, const Visit& visit) {
  const Dims y = window_output(x, filter[0], window);
  const auto channels = static_cast<std::size_t>(x[1]);
  const auto filters = static_cast<std::size_t>(filter[0]);
  const std::size_t x_space = size_of(space_of(x));
  const std::size_t y_space = size_of(space_of(y));
  const std::size_t taps = size_of(window.kernel);
  for (std::size_t n = 0; n < static_cast<std::size_t>(x[0]); ++n) {
    for (std::size_t k = 0; k < filters; ++k) {
      for (std::size_t c = 0; c < channels; ++c) {
        for_each_tap(space_of(x), space_of(y), window, [&](std::size_t out, std::size_t in, std::size_t tap) {
          visit((n * channels + c) * x_space + in, (k * channels + c) * taps + tap,
                (n * filters + k) * y_space + out);
        });
      }
    }
  }
}

// visit(element of x, element of the weights, element of y).
template <class Visit>
void for_each_connection(const Dims& x, std::int64_t outputs, const Visit& visit) {
  const std::size_t inputs = size_of(x) / static_cast<std::size_t>(x[0]);
  for (std::size_t n = 0; n < static_cast<std::size_t>(x[0]); ++n) {
    for (std::size_t k = 0; k < static_cast<std::size_t>(outputs); ++k) {
      for (std::size_t i = 0; i < inputs; ++i) {
        visit(n * inputs + i, k * inputs + i, n * static_cast<std::size_t>(outputs) + k);
      }
    }
  }
}

// visit(element of x, element of y) for every element of every window of a pooling.
template <class Visit>
void for_each_pooled(const Dims& x, const Window& window, const Visit& visit) {
  const Dims y = window_output(x, x[1], window);
  const std::size_t x_space = size_of(space_of(x));
  const std::size_t y_space = size_of(space_of(y));
  for (std::size_t image = 0; image < static_cast<std::size_t>(x[0] * x[1]); ++image) {
    for_each_tap(space_of(x), space_of(y), window, [&](std::size_t out, std::size_t in, std::size_t) {
      visit(image * x_space + in, image * y_space + out);
    });
  }
}

void add_bias(Sums& y, const Array& bias) {
  const std::size_t channels = bias.data.size();
  const std::size_t space = size_of(y.value.dims) / static_cast<std::size_t>(y.value.dims[0]) / channels;
  for (std::size_t i = 0; i < y.value.data.size(); ++i) {
    y.add(i, bias.data[i / space % channels]);
  }
}

// Elements that each window averages over.
std::vector<std::int64_t> window_counts(const Dims& x, const Window& window) {
  std::vector<std::int64_t> counts(size_of(window_output(x, x[1], window)));
  for_each_pooled(x, window, [&](std::size_t, std::size_t out) { ++counts[out]; });
  return counts;
}

// The element of x that each window's maximum is.
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

}  // namespace

Array::Array(Dims shape) : dims(std::move(shape)), data(size_of(dims)) {}

Sums::Sums(const Dims& dims) : value(dims), magnitude(value.data.size()), terms(value.data.size()) {}

void Sums::add(std::size_t element, double term) {
  value.data[element] += term;
  magnitude[element] += std::abs(term);
  ++terms[element];
}

double Sums::bound(std::size_t element) const {
  constexpr double kUnitRoundoff = 0x1p-24;
  const double nu = static_cast<double>(terms[element]) * kUnitRoundoff;
  return nu / (1 - nu) * magnitude[element];
}

Dims window_output(const Dims& input, std::int64_t channels, const Window& window) {
  Dims output{input[0], channels};
  for (std::size_t axis = 0; axis < window.kernel.size(); ++axis) {
    output.push_back(
        (input[axis + 2] + 2 * window.padding[axis] - window.kernel[axis]) / window.stride[axis] + 1);
  }
  return output;
}

Sums convolution(const Array& x, const Array& filter, const Array& bias, const Window& window) {
  Sums y(window_output(x.dims, filter.dims[0], window));
  for_each_product(x.dims, filter.dims, window, [&](std::size_t in, std::size_t w, std::size_t out) {
    y.add(out, x.data[in] * filter.data[w]);
  });
  add_bias(y, bias);
  return y;
}

Sums convolution_backward_data(const Dims& x, const Array& filter, const Array& dy, const Window& window) {
  Sums dx(x);
  for_each_product(x, filter.dims, window, [&](std::size_t in, std::size_t w, std::size_t out) {
    dx.add(in, dy.data[out] * filter.data[w]);
  });
  return dx;
}

Sums convolution_backward_filter(const Array& x, const Dims& filter, const Array& dy, const Window& window) {
  Sums dw(filter);
  for_each_product(x.dims, filter, window, [&](std::size_t in, std::size_t w, std::size_t out) {
    dw.add(w, dy.data[out] * x.data[in]);
  });
  return dw;
}

Sums backward_bias(const Array& dy) {
  const auto channels = static_cast<std::size_t>(dy.dims[1]);
  const std::size_t space = size_of(space_of(dy.dims));
  Sums db(Dims{dy.dims[1]});
  for (std::size_t i = 0; i < dy.data.size(); ++i) {
    db.add(i / space % channels, dy.data[i]);
  }
  return db;
}

Sums fully_connected(const Array& x, const Array& weights, const Array& bias) {
  Sums y(Dims{x.dims[0], weights.dims[0]});
  for_each_connection(x.dims, weights.dims[0], [&](std::size_t in, std::size_t w, std::size_t out) {
    y.add(out, x.data[in] * weights.data[w]);
  });
  add_bias(y, bias);
  return y;
}

Sums fully_connected_backward_data(const Dims& x, const Array& weights, const Array& dy) {
  Sums dx(x);
  for_each_connection(x, weights.dims[0], [&](std::size_t in, std::size_t w, std::size_t out) {
    dx.add(in, dy.data[out] * weights.data[w]);
  });
  return dx;
}

Sums fully_connected_backward_weights(const Array& x, const Dims& weights, const Array& dy) {
  Sums dw(weights);
  for_each_connection(x.dims, weights[0], [&](std::size_t in, std::size_t w, std::size_t out) {
    dw.add(w, dy.data[out] * x.data[in]);
  });
  return dw;
}

Array relu(const Array& x) {
  Array y(x.dims);
  std::ranges::transform(x.data, y.data.begin(), [](double value) { return std::max(value, 0.0); });
  return y;
}

Array relu_backward(const Array& y, const Array& dy) {
  Array dx(y.dims);
  std::ranges::transform(y.data, dy.data, dx.data.begin(),
                         [](double value, double gradient) { return value > 0 ? gradient : 0.0; });
  return dx;
}

Sums add(const Array& a, const Array& b) {
  Sums sum(a.dims);
  for (std::size_t i = 0; i < a.data.size(); ++i) {
    sum.add(i, a.data[i]);
    sum.add(i, b.data[i]);
  }
  return sum;
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

// A division is one rounding more, and so may the reciprocal be: two terms that add nothing.
Sums average_pooling(const Array& x, const Window& window) {
  const std::vector<std::int64_t> counts = window_counts(x.dims, window);
  Sums y(window_output(x.dims, x.dims[1], window));
  for_each_pooled(x.dims, window, [&](std::size_t in, std::size_t out) {
    y.add(out, x.data[in] / static_cast<double>(counts[out]));
  });
  for (std::int64_t& terms : y.terms) {
    terms += 2;
  }
  return y;
}

Sums average_pooling_backward(const Dims& x, const Array& dy, const Window& window) {
  const std::vector<std::int64_t> counts = window_counts(x, window);
  Sums dx(x);
  for_each_pooled(x, window, [&](std::size_t in, std::size_t out) {
    dx.add(in, dy.data[out] / static_cast<double>(counts[out]));
  });
  for (std::int64_t& terms : dx.terms) {
    terms += 2;
  }
  return dx;
}

}  // namespace vdnn::reference
