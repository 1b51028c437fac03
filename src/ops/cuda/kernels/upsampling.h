#pragma once
// Upsampling by whole factors, in three spatial dimensions (missing dimensions have extent and factor 1). In
// the backward pass, each element of dX sums its part of dY in a fixed order. Kernels do not read neighbours
// whose weight is zero, so that infinities do not spread. A thread computes a pack of the channels of one
// place.

#include <cstdint>

#include "src/ops/cuda/kernels/divisor.h"
#include "src/ops/cuda/kernels/packs.h"

namespace vdnn::cuda {

// The two neighbours in x of an output along one dimension. The output's coordinate in x is (2 o + 1 -
// factor) / (2 factor), clamped to the grid.
struct Tap {
  std::uint64_t low = 0;
  float low_weight = 1;
  float high_weight = 0;  // weight of neighbour low + 1

  VDNN_HOST_DEVICE Tap(std::uint64_t output, std::uint64_t factor, std::uint64_t extent) {
    const std::uint64_t numerator = 2 * output + 1 < factor ? 0 : 2 * output + 1 - factor;
    low = numerator / (2 * factor);
    if (low + 1 >= extent) {
      low = extent - 1;
    } else {
      const std::uint64_t rest = numerator - low * 2 * factor;
      high_weight = static_cast<float>(rest) / static_cast<float>(2 * factor);
      low_weight = static_cast<float>(2 * factor - rest) / static_cast<float>(2 * factor);
    }
  }

  VDNN_HOST_DEVICE float weight(std::uint64_t input) const {
    return input == low ? low_weight : input == low + 1 ? high_weight : 0.0F;
  }
};

// The factor and the extents of one spatial dimension.
struct UpsampledAxis {
  Divisor extent;  // of x
  Divisor output;  // extent of y
  Divisor factor;

  // The outputs to which an input may contribute: [begin, end).
  struct Range {
    std::uint64_t begin;
    std::uint64_t end;
  };
  VDNN_HOST_DEVICE Range nearest(std::uint64_t input) const {
    return {input * factor.value(), (input + 1) * factor.value()};
  }
  VDNN_HOST_DEVICE Range linear(std::uint64_t input) const {
    const std::uint64_t f = factor.value();
    return {input == 0 ? 0 : (input - 1) * f + f / 2, smaller((input + 1) * f + f / 2, output.value())};
  }
  VDNN_HOST_DEVICE Tap tap(std::uint64_t place) const { return {place, factor.value(), extent.value()}; }
};

struct UpsamplingShape {
  Divisor channels;
  UpsampledAxis axes[3];
};

// Coordinates of an element of x or y, channels last.
struct Place {
  std::uint64_t sample;
  std::uint64_t at[3];
  std::uint64_t channel;
};

VDNN_HOST_DEVICE inline Place place_of(std::uint64_t element, const Divisor& channels, const Divisor& depth,
                                       const Divisor& height, const Divisor& width) {
  const std::uint64_t place = channels.quotient(element);
  const std::uint64_t row = width.quotient(place);
  const std::uint64_t plane = height.quotient(row);
  const std::uint64_t sample = depth.quotient(plane);
  return {sample,
          {plane - sample * depth.value(), row - plane * height.value(), place - row * width.value()},
          element - place * channels.value()};
}

VDNN_HOST_DEVICE inline Place output_place(std::uint64_t element, const UpsamplingShape& shape) {
  return place_of(element, shape.channels, shape.axes[0].output, shape.axes[1].output, shape.axes[2].output);
}
VDNN_HOST_DEVICE inline Place input_place(std::uint64_t element, const UpsamplingShape& shape) {
  return place_of(element, shape.channels, shape.axes[0].extent, shape.axes[1].extent, shape.axes[2].extent);
}

VDNN_HOST_DEVICE inline std::uint64_t element_at(const Place& place, std::uint64_t channels,
                                                 std::uint64_t depth, std::uint64_t height,
                                                 std::uint64_t width) {
  return (((place.sample * depth + place.at[0]) * height + place.at[1]) * width + place.at[2]) * channels +
         place.channel;
}
VDNN_HOST_DEVICE inline std::uint64_t output_element(const Place& place, const UpsamplingShape& shape) {
  return element_at(place, shape.channels.value(), shape.axes[0].output.value(), shape.axes[1].output.value(),
                    shape.axes[2].output.value());
}
VDNN_HOST_DEVICE inline std::uint64_t input_element(const Place& place, const UpsamplingShape& shape) {
  return element_at(place, shape.channels.value(), shape.axes[0].extent.value(), shape.axes[1].extent.value(),
                    shape.axes[2].extent.value());
}

template <class Format>
struct UpsampleNearest {
  static constexpr const char* kName = "upsample_nearest";
  static constexpr std::uint32_t kPack = kPackOf<Format>;
  const Stored<Format>* x = nullptr;
  Stored<Format>* y = nullptr;
  UpsamplingShape shape;
  std::uint64_t elements = 0;  // of y

  VDNN_HOST_DEVICE bool in_packs() const { return shape.channels.value() % kPack == 0; }

  template <std::uint32_t kCount>
  VDNN_HOST_DEVICE void operator()(Pack<kCount> pack) const {
    Place place = output_place(pack.first, shape);
    for (std::uint32_t axis = 0; axis < 3; ++axis) {
      place.at[axis] = shape.axes[axis].factor.quotient(place.at[axis]);
    }
    store<Format>(y, pack, load<Format>(x, Pack<kCount>{input_element(place, shape)}));
  }
};

// Adds weight * more to sum, element by element.
template <std::uint32_t kCount>
VDNN_HOST_DEVICE void add_weighted(Floats<kCount>& sum, float weight, const Floats<kCount>& more) {
  for (std::uint32_t i = 0; i < kCount; ++i) {
    sum[i] += weight * more[i];
  }
}

template <class Format>
struct UpsampleLinear {
  static constexpr const char* kName = "upsample_linear";
  static constexpr std::uint32_t kPack = kPackOf<Format>;
  const Stored<Format>* x = nullptr;
  Stored<Format>* y = nullptr;
  UpsamplingShape shape;
  std::uint64_t elements = 0;  // of y

  VDNN_HOST_DEVICE bool in_packs() const { return shape.channels.value() % kPack == 0; }

  template <std::uint32_t kCount>
  VDNN_HOST_DEVICE void operator()(Pack<kCount> pack) const {
    const Place place = output_place(pack.first, shape);
    const Tap taps[3] = {shape.axes[0].tap(place.at[0]), shape.axes[1].tap(place.at[1]),
                         shape.axes[2].tap(place.at[2])};
    Floats<kCount> sum;
    for (std::uint32_t corner = 0; corner < 8; ++corner) {
      Place neighbour = place;
      float weight = 1;
      for (std::uint32_t axis = 0; axis < 3; ++axis) {
        const std::uint32_t high = corner >> axis & 1;
        neighbour.at[axis] = taps[axis].low + high;
        weight *= high == 0 ? taps[axis].low_weight : taps[axis].high_weight;
      }
      if (weight != 0) {
        add_weighted(sum, weight, load<Format>(x, Pack<kCount>{input_element(neighbour, shape)}));
      }
    }
    store<Format>(y, pack, sum);
  }
};

template <class Format>
struct UpsampleBackward {
  static constexpr const char* kName = "upsample_backward";
  static constexpr std::uint32_t kPack = kPackOf<Format>;
  const Stored<Format>* dy = nullptr;
  Stored<Format>* dx = nullptr;
  UpsamplingShape shape;
  bool linear = false;
  std::uint64_t elements = 0;  // of x

  VDNN_HOST_DEVICE bool in_packs() const { return shape.channels.value() % kPack == 0; }

  template <std::uint32_t kCount>
  VDNN_HOST_DEVICE void operator()(Pack<kCount> pack) const {
    const Place input = input_place(pack.first, shape);
    const UpsampledAxis::Range range[3] = {reach(0, input), reach(1, input), reach(2, input)};
    Place output = input;
    Floats<kCount> sum;
    for (output.at[0] = range[0].begin; output.at[0] < range[0].end; ++output.at[0]) {
      for (output.at[1] = range[1].begin; output.at[1] < range[1].end; ++output.at[1]) {
        for (output.at[2] = range[2].begin; output.at[2] < range[2].end; ++output.at[2]) {
          const float weight = linear ? weight_of(output, input) : 1.0F;
          if (weight != 0) {
            add_weighted(sum, weight, load<Format>(dy, Pack<kCount>{output_element(output, shape)}));
          }
        }
      }
    }
    store<Format>(dx, pack, sum);
  }

 private:
  VDNN_HOST_DEVICE UpsampledAxis::Range reach(std::uint32_t axis, const Place& input) const {
    return linear ? shape.axes[axis].linear(input.at[axis]) : shape.axes[axis].nearest(input.at[axis]);
  }
  VDNN_HOST_DEVICE float weight_of(const Place& output, const Place& input) const {
    float weight = 1;
    for (std::uint32_t axis = 0; axis < 3; ++axis) {
      weight *= shape.axes[axis].tap(output.at[axis]).weight(input.at[axis]);
    }
    return weight;
  }
};

}  // namespace vdnn::cuda
