#include "src/ops/cuda/normalization.h"

namespace vdnn::cuda {

namespace {

ColumnSums<Products> products_of_channels(Workspace& workspace, const MapShape& map) {
  ColumnSums<Products> products = column_sums(Products{}, map, nullptr);
  products.sums = workspace.take<Sums<2>>(checked_multiply(map.samples * map.channels, products.pieces()));
  return products;
}

ChannelGradients gradients_of(const ChannelSumsLayout& layout, const GroupMoments& moments) {
  return {.sums = layout.channel_sums,
          .mean = moments.mean,
          .reciprocal_deviation = moments.reciprocal_deviation};
}

}  // namespace

GroupSumsLayout::GroupSumsLayout(Workspace& workspace, const Geometry& geometry)
    : products(products_of_channels(workspace, geometry.map)),
      group_sums(workspace.take<Sums<2>>(geometry.all_groups())) {}

void launch_group_sums(const Launcher& launcher, const Geometry& geometry, const float* x,
                       GroupSumsLayout& layout) {
  layout.products.term = {.a = x, .b = x};
  launcher.launch(layout.products);
  // The pieces of all channels of a group lie together.
  launch_partial_sums(launcher, layout.products.sums, geometry.all_groups(),
                      geometry.group_channels * layout.products.pieces(), layout.group_sums);
}

void launch_normalize(const Launcher& launcher, const Geometry& geometry, const OpOperands& operands,
                      const GroupMoments& moments) {
  launcher.launch(GroupNormalize{.x = read_pointer<float>(operands, 0),
                                 .scale = read_pointer<float>(operands, 1),
                                 .shift = read_pointer<float>(operands, 2),
                                 .mean = moments.mean,
                                 .reciprocal_deviation = moments.reciprocal_deviation,
                                 .y = write_pointer<float>(operands, 0),
                                 .position = geometry.position(),
                                 .elements = geometry.map.elements()});
}

ChannelSumsLayout::ChannelSumsLayout(Workspace& workspace, const Geometry& geometry)
    : products(products_of_channels(workspace, geometry.map)),
      channel_sums(workspace.take<Sums<2>>(geometry.map.samples * geometry.map.channels)) {}

void launch_scale_and_shift_gradients(const Launcher& launcher, const Geometry& geometry,
                                      const OpOperands& operands, const GroupMoments& moments,
                                      float* scale_gradient, float* shift_gradient,
                                      ChannelSumsLayout& layout) {
  layout.products.term = {.a = read_pointer<float>(operands, 3), .b = read_pointer<float>(operands, 0)};
  launcher.launch(layout.products);
  launch_partial_sums(launcher, layout.products.sums, geometry.map.samples * geometry.map.channels,
                      layout.products.pieces(), layout.channel_sums);
  launcher.launch(ScaleAndShiftGradients{.gradients = gradients_of(layout, moments),
                                         .samples = geometry.map.samples,
                                         .group_channels = geometry.group_channels,
                                         .scale_gradient = scale_gradient,
                                         .shift_gradient = shift_gradient,
                                         .elements = geometry.map.channels});
}

void launch_input_gradient(const Launcher& launcher, const Geometry& geometry, const OpOperands& operands,
                           const GroupMoments& moments, const GradientCoefficients& coefficients) {
  launcher.launch(GroupGradient{.x = read_pointer<float>(operands, 0),
                                .mean = moments.mean,
                                .reciprocal_deviation = moments.reciprocal_deviation,
                                .of_x = coefficients.of_x,
                                .constant = coefficients.constant,
                                .dy = read_pointer<float>(operands, 3),
                                .scale = read_pointer<float>(operands, 4),
                                .dx = write_pointer<float>(operands, 0),
                                .position = geometry.position(),
                                .elements = geometry.map.elements()});
}

GradientsLayout::GradientsLayout(Workspace& workspace, const Geometry& geometry)
    : sums(workspace, geometry),
      scaled(workspace, geometry.all_groups(), geometry.group_channels),
      of_x(workspace.take<float>(geometry.all_groups())),
      constant(workspace.take<float>(geometry.all_groups())) {}

void launch_gradients(const Launcher& launcher, const Geometry& geometry, const OpOperands& operands,
                      const GroupMoments& moments, GradientsLayout& layout) {
  launch_scale_and_shift_gradients(launcher, geometry, operands, moments, write_pointer<float>(operands, 1),
                                   write_pointer<float>(operands, 2), layout.sums);
  launch_row_sums(launcher,
                  ScaledGradients{.gradients = gradients_of(layout.sums, moments),
                                  .scale = read_pointer<float>(operands, 4),
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
