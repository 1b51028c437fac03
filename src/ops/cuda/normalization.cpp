#include "src/ops/cuda/normalization.h"

#include "src/ops/formats.h"
#include "src/ops/layer_operands.h"

namespace vdnn::cuda {

namespace {

void launch_products(const Launcher& launcher, const MapShape& map, const AddressRange& a,
                     const AddressRange& b, const ProductsLayout& layout) {
  ops::with_format(map.data_type, [&]<class Format>(Format) {
    const Products<Format> products{.a = pointer_to<const Stored<Format>>(a.begin),
                                    .b = pointer_to<const Stored<Format>>(b.begin)};
    launcher.launch(column_sums(products, map, layout.sums));
  });
}

ChannelGradients gradients_of(const ChannelSumsLayout& layout, const GroupMoments& moments) {
  return {.sums = layout.channel_sums,
          .mean = moments.mean,
          .reciprocal_deviation = moments.reciprocal_deviation};
}

}  // namespace

ProductsLayout::ProductsLayout(Workspace& workspace, const MapShape& map)
    : pieces(column_sums(Products<Fp32>{}, map, nullptr).pieces()),
      sums(workspace.take<Sums<2>>(checked_multiply(map.samples * map.channels, pieces))) {}

GroupSumsLayout::GroupSumsLayout(Workspace& workspace, const Geometry& geometry)
    : products(workspace, geometry.map), group_sums(workspace.take<Sums<2>>(geometry.all_groups())) {}

void launch_group_sums(const Launcher& launcher, const Geometry& geometry, const AddressRange& x,
                       const GroupSumsLayout& layout) {
  launch_products(launcher, geometry.map, x, x, layout.products);
  // The pieces of all channels of a group are adjacent.
  launch_partial_sums(launcher, layout.products.sums, geometry.all_groups(),
                      geometry.group_channels * layout.products.pieces, layout.group_sums);
}

void launch_normalize(const Launcher& launcher, const Geometry& geometry, const OpOperands& operands,
                      const GroupMoments& moments) {
  using namespace ops::normalization;
  ops::with_format(geometry.map.data_type, [&]<class Format>(Format) {
    launcher.launch(GroupNormalize<Format>{.x = read_pointer<Stored<Format>>(operands, kForward.read(kX)),
                                           .scale = read_pointer<float>(operands, kForward.read(kScale)),
                                           .shift = read_pointer<float>(operands, kForward.read(kShift)),
                                           .mean = moments.mean,
                                           .reciprocal_deviation = moments.reciprocal_deviation,
                                           .y = write_pointer<Stored<Format>>(operands, kForward.write(kY)),
                                           .position = geometry.position(),
                                           .elements = geometry.map.elements()});
  });
}

ChannelSumsLayout::ChannelSumsLayout(Workspace& workspace, const Geometry& geometry)
    : products(workspace, geometry.map),
      channel_sums(workspace.take<Sums<2>>(geometry.map.samples * geometry.map.channels)) {}

void launch_scale_and_shift_gradients(const Launcher& launcher, const Geometry& geometry,
                                      const OpOperands& operands, const GroupMoments& moments,
                                      float* scale_gradient, float* shift_gradient,
                                      const ChannelSumsLayout& layout) {
  using namespace ops::normalization;
  launch_products(launcher, geometry.map, operands.reads[kBackward.read(kDY)],
                  operands.reads[kBackward.read(kX)], layout.products);
  launch_partial_sums(launcher, layout.products.sums, geometry.map.samples * geometry.map.channels,
                      layout.products.pieces, layout.channel_sums);
  launcher.launch(ScaleAndShiftGradients{.gradients = gradients_of(layout, moments),
                                         .samples = geometry.map.samples,
                                         .group_channels = geometry.group_channels,
                                         .scale_gradient = scale_gradient,
                                         .shift_gradient = shift_gradient,
                                         .elements = geometry.map.channels});
}

void launch_input_gradient(const Launcher& launcher, const Geometry& geometry, const OpOperands& operands,
                           const GroupMoments& moments, const GradientCoefficients& coefficients) {
  using namespace ops::normalization;
  ops::with_format(geometry.map.data_type, [&]<class Format>(Format) {
    launcher.launch(GroupGradient<Format>{.x = read_pointer<Stored<Format>>(operands, kBackward.read(kX)),
                                          .mean = moments.mean,
                                          .reciprocal_deviation = moments.reciprocal_deviation,
                                          .of_x = coefficients.of_x,
                                          .constant = coefficients.constant,
                                          .dy = read_pointer<Stored<Format>>(operands, kBackward.read(kDY)),
                                          .scale = read_pointer<float>(operands, kBackward.read(kScale)),
                                          .dx = write_pointer<Stored<Format>>(operands, kBackward.write(kDX)),
                                          .position = geometry.position(),
                                          .elements = geometry.map.elements()});
  });
}

GradientsLayout::GradientsLayout(Workspace& workspace, const Geometry& geometry)
    : sums(workspace, geometry),
      scaled(workspace, geometry.all_groups(), geometry.group_channels),
      of_x(workspace.take<float>(geometry.all_groups())),
      constant(workspace.take<float>(geometry.all_groups())) {}

void launch_gradients(const Launcher& launcher, const Geometry& geometry, const OpOperands& operands,
                      const GroupMoments& moments, const GradientsLayout& layout) {
  using namespace ops::normalization;
  launch_scale_and_shift_gradients(launcher, geometry, operands, moments,
                                   write_pointer<float>(operands, kBackward.write(kDScale)),
                                   write_pointer<float>(operands, kBackward.write(kDShift)), layout.sums);
  launch_row_sums(launcher,
                  ScaledGradients{.gradients = gradients_of(layout.sums, moments),
                                  .scale = read_pointer<float>(operands, kBackward.read(kScale)),
                                  .groups = geometry.groups,
                                  .group_channels = geometry.group_channels},
                  layout.scaled);
  launcher.launch(GroupCoefficients{.sums = layout.scaled.sums,
                                    .reciprocal_deviation = moments.reciprocal_deviation,
                                    .count = geometry.group_elements(),
                                    .of_x = layout.of_x,
                                    .constant = layout.constant,
                                    .elements = geometry.all_groups()});
  launch_input_gradient(launcher, geometry, operands, moments,
                        {.of_x = layout.of_x, .constant = layout.constant});
}

}  // namespace vdnn::cuda
