#pragma once
// Launches that normalise over sets of elements. A set is a group of channels of one sample (group
// normalisation), or one channel of the whole batch (batch normalisation). In the second case each channel is
// a group, and the whole batch counts as one sample.

#include "src/ops/cuda/column_sums.h"

namespace vdnn::cuda {

struct Geometry {
  MapShape map;
  std::uint64_t groups;
  std::uint64_t group_channels;

  Geometry(const MapShape& shape, std::uint64_t group_count)
      : map(shape), groups(group_count), group_channels(map.channels / groups) {}

  std::uint64_t all_groups() const { return map.samples * groups; }
  double group_elements() const { return static_cast<double>(map.places * group_channels); }
  GroupPosition position() const {
    return {.channels = Divisor(map.channels),
            .places = Divisor(map.places),
            .group_channels = Divisor(group_channels),
            .groups = groups};
  }
};

// The sums of `a` and `a * b` (ProductSums) over the pieces of each channel of each sample, for maps of any
// format.
struct ProductsLayout {
  std::uint64_t pieces;
  Sums<2>* sums;

  ProductsLayout(Workspace& workspace, const MapShape& map);
};

// Sums of x and x^2 of each group.
struct GroupSumsLayout {
  ProductsLayout products;
  Sums<2>* group_sums;

  GroupSumsLayout(Workspace& workspace, const Geometry& geometry);
};
void launch_group_sums(const Launcher& launcher, const Geometry& geometry, const AddressRange& x,
                       const GroupSumsLayout& layout);

// The mean and the reciprocal standard deviation of each group.
struct GroupMoments {
  const float* mean;
  const float* reciprocal_deviation;
};

// Writes Y. `operands` begin with those of ops::normalization::kForward; operands from which moments are
// computed may follow.
void launch_normalize(const Launcher& launcher, const Geometry& geometry, const OpOperands& operands,
                      const GroupMoments& moments);

struct ChannelSumsLayout {
  ProductsLayout products;
  Sums<2>* channel_sums;  // summed over all samples

  ChannelSumsLayout(Workspace& workspace, const Geometry& geometry);
};
// Writes the gradients of scale and shift. The reads of `operands` begin with those of
// ops::normalization::kBackward up to dY.
void launch_scale_and_shift_gradients(const Launcher& launcher, const Geometry& geometry,
                                      const OpOperands& operands, const GroupMoments& moments,
                                      float* scale_gradient, float* shift_gradient,
                                      const ChannelSumsLayout& layout);

// Coefficients of each group from which dX is computed (GroupCoefficients).
struct GradientCoefficients {
  const float* of_x;
  const float* constant;
};
void launch_input_gradient(const Launcher& launcher, const Geometry& geometry, const OpOperands& operands,
                           const GroupMoments& moments, const GradientCoefficients& coefficients);

struct GradientsLayout {
  ChannelSumsLayout sums;
  RowSumsLayout<2> scaled;
  float* of_x;
  float* constant;

  GradientsLayout(Workspace& workspace, const Geometry& geometry);
};
// Writes all gradients. `operands` are those of ops::normalization::kBackward.
void launch_gradients(const Launcher& launcher, const Geometry& geometry, const OpOperands& operands,
                      const GroupMoments& moments, const GradientsLayout& layout);

}  // namespace vdnn::cuda
