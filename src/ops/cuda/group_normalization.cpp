// Group normalisation.

#include "src/ops/cuda/column_sums.h"
#include "src/ops/cuda/layer_ops.h"
#include "src/ops/standard_recipes.h"

namespace vdnn::cuda {

namespace {

struct Geometry {
  MapShape map;
  std::uint64_t groups;
  std::uint64_t group_channels;

  Geometry(const GroupNormalizationSpec& spec, const TensorType& type)
      : map(type), groups(static_cast<std::uint64_t>(spec.groups)), group_channels(map.channels / groups) {}

  std::uint64_t all_groups() const { return map.samples * groups; }
  double group_elements() const { return static_cast<double>(map.places * group_channels); }
  GroupPosition position() const {
    return {.channels = Divisor(map.channels),
            .places = Divisor(map.places),
            .group_channels = Divisor(group_channels),
            .groups = groups};
  }
};

struct ForwardLayout {
  ColumnSums<Products> products;
  Sums<2>* group_sums;
  // Where there is nothing to save them for.
  float* mean;
  float* reciprocal_deviation;

  ForwardLayout(Workspace& workspace, const Geometry& geometry)
      : products(column_sums(Products{}, geometry.map, nullptr)),
        group_sums(workspace.take<Sums<2>>(geometry.all_groups())),
        mean(workspace.take<float>(geometry.all_groups())),
        reciprocal_deviation(workspace.take<float>(geometry.all_groups())) {
    products.sums = workspace.take<Sums<2>>(
        checked_multiply(geometry.map.samples * geometry.map.channels, products.pieces()));
  }
};

struct BackwardLayout {
  ColumnSums<Products> products;
  Sums<2>* channel_sums;  // of all samples
  RowSumsLayout<2> scaled;
  float* of_x;
  float* constant;

  BackwardLayout(Workspace& workspace, const Geometry& geometry)
      : products(column_sums(Products{}, geometry.map, nullptr)),
        channel_sums(workspace.take<Sums<2>>(geometry.map.samples * geometry.map.channels)),
        scaled(workspace, geometry.all_groups(), geometry.group_channels),
        of_x(workspace.take<float>(geometry.all_groups())),
        constant(workspace.take<float>(geometry.all_groups())) {
    products.sums = workspace.take<Sums<2>>(
        checked_multiply(geometry.map.samples * geometry.map.channels, products.pieces()));
  }
};

OpKernel forward_kernel(const Geometry& geometry, double epsilon) {
  return [=](const OpOperands& operands, const StepScalars&, const Launcher& launcher) {
    Workspace workspace(operands.workspace.begin);
    ForwardLayout layout(workspace, geometry);
    const bool training = operands.writes.size() > 1;
    float* const mean = training ? write_pointer<float>(operands, 1) : layout.mean;
    float* const reciprocal_deviation =
        training ? write_pointer<float>(operands, 2) : layout.reciprocal_deviation;
    const float* const x = read_pointer<float>(operands, 0);
    layout.products.term = {.a = x, .b = x};
    launcher.launch(layout.products);
    // The pieces of all channels of a group lie together.
    launch_partial_sums(launcher, layout.products.sums, geometry.all_groups(),
                        geometry.group_channels * layout.products.pieces(), layout.group_sums);
    launcher.launch(GroupStatistics{.sums = layout.group_sums,
                                    .count = geometry.group_elements(),
                                    .epsilon = epsilon,
                                    .mean = mean,
                                    .reciprocal_deviation = reciprocal_deviation,
                                    .elements = geometry.all_groups()});
    launcher.launch(GroupNormalize{.x = x,
                                   .scale = read_pointer<float>(operands, 1),
                                   .shift = read_pointer<float>(operands, 2),
                                   .mean = mean,
                                   .reciprocal_deviation = reciprocal_deviation,
                                   .y = write_pointer<float>(operands, 0),
                                   .position = geometry.position(),
                                   .elements = geometry.map.elements()});
  };
}

void launch_channel_sums(const Launcher& launcher, const Geometry& geometry, const OpOperands& operands,
                         BackwardLayout& layout) {
  layout.products.term = {.a = read_pointer<float>(operands, 3), .b = read_pointer<float>(operands, 0)};
  launcher.launch(layout.products);
  launch_partial_sums(launcher, layout.products.sums, geometry.map.samples * geometry.map.channels,
                      layout.products.pieces(), layout.channel_sums);
}

OpKernel backward_kernel(const Geometry& geometry) {
  return [=](const OpOperands& operands, const StepScalars&, const Launcher& launcher) {
    Workspace workspace(operands.workspace.begin);
    BackwardLayout layout(workspace, geometry);
    launch_channel_sums(launcher, geometry, operands, layout);
    const float* const mean = read_pointer<float>(operands, 1);
    const float* const reciprocal_deviation = read_pointer<float>(operands, 2);
    const float* const scale = read_pointer<float>(operands, 4);
    const ChannelGradients gradients{
        .sums = layout.channel_sums, .mean = mean, .reciprocal_deviation = reciprocal_deviation};
    launcher.launch(ScaleAndShiftGradients{.gradients = gradients,
                                           .samples = geometry.map.samples,
                                           .group_channels = geometry.group_channels,
                                           .scale_gradient = write_pointer<float>(operands, 1),
                                           .shift_gradient = write_pointer<float>(operands, 2),
                                           .elements = geometry.map.channels});
    launch_row_sums(launcher,
                    ScaledGradients{.gradients = gradients,
                                    .scale = scale,
                                    .groups = geometry.groups,
                                    .group_channels = geometry.group_channels},
                    layout.scaled);
    launcher.launch(GroupCoefficients{.sums = layout.scaled.sums,
                                      .reciprocal_deviation = reciprocal_deviation,
                                      .count = geometry.group_elements(),
                                      .of_x = layout.of_x,
                                      .constant = layout.constant,
                                      .elements = geometry.all_groups()});
    launcher.launch(GroupGradient{.x = read_pointer<float>(operands, 0),
                                  .mean = mean,
                                  .reciprocal_deviation = reciprocal_deviation,
                                  .of_x = layout.of_x,
                                  .constant = layout.constant,
                                  .dy = read_pointer<float>(operands, 3),
                                  .scale = scale,
                                  .dx = write_pointer<float>(operands, 0),
                                  .position = geometry.position(),
                                  .elements = geometry.map.elements()});
  };
}

}  // namespace

LayerRecipe make_recipe(const GroupNormalizationSpec& spec, const LayerTypes& types, Mode mode) {
  // Checked before anything is counted.
  LayerRecipe recipe = ops::standard_recipe(spec, types, mode, {});
  const Geometry geometry(spec, types.inputs[0]);
  recipe.forward[0].algorithms = own_algorithm(workspace_bytes<ForwardLayout>(geometry));
  if (mode == Mode::kTraining) {
    recipe.backward[0].algorithms = own_algorithm(workspace_bytes<BackwardLayout>(geometry));
  }
  return recipe;
}

OpKernel make_kernel(const GroupNormalizationSpec& spec, const KernelRequest& request) {
  const Geometry geometry(spec, request.op.layer_inputs[0]);
  return request.op.direction == Direction::kForward
             ? forward_kernel(geometry, static_cast<double>(spec.epsilon))
             : backward_kernel(geometry);
}

}  // namespace vdnn::cuda
