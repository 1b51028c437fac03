#pragma once
// Launches sums over the places of each channel; see kernels/column_sums.h.

#include "src/ops/cuda/sums.h"

namespace vdnn::cuda {

// The shape of a feature map, channels last.
struct MapShape {
  DataType data_type = DataType::kF32;
  std::uint64_t samples = 0;
  std::uint64_t places = 0;  // per sample
  std::uint64_t channels = 0;

  explicit MapShape(const TensorType& type)
      : data_type(type.data_type),
        samples(static_cast<std::uint64_t>(type.dims[0])),
        places(type.elements() / samples / static_cast<std::uint64_t>(type.dims[1])),
        channels(static_cast<std::uint64_t>(type.dims[1])) {}

  std::uint64_t elements() const { return samples * places * channels; }
};

// Returns the shape of a batch whose places all count as places of one sample.
inline MapShape one_sample(const TensorType& type) {
  MapShape shape(type);
  shape.places *= shape.samples;
  shape.samples = 1;
  return shape;
}

template <class Term>
ColumnSums<Term> column_sums(const Term& term, const MapShape& shape, typename Term::Sum* sums) {
  return {.term = term,
          .samples = shape.samples,
          .places = shape.places,
          .channels = shape.channels,
          .sums = sums};
}

}  // namespace vdnn::cuda
