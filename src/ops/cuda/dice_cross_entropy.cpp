// Cross-entropy and soft Dice.

#include "src/ops/cuda/class_loss.h"
#include "src/ops/cuda/layer_ops.h"
#include "src/ops/layer_operands.h"

namespace vdnn::cuda {

namespace {

constexpr std::string_view kName = "dice cross-entropy";

struct ForwardLayout {
  ClassLossLayout of_classes;
  RowSumsLayout<1> place_counts;  // one row per sample
  RowSumsLayout<3> class_sums;    // one row per sample and class
  RowSumsLayout<2> dice;

  ForwardLayout(Workspace& workspace, const ops::ClassPlaces& problem)
      : of_classes(workspace, problem),
        place_counts(workspace, problem.samples, problem.places),
        class_sums(workspace, problem.samples * problem.classes, problem.places),
        dice(workspace, 1, problem.samples * problem.classes) {}
};

struct BackwardLayout {
  RowSumsLayout<1> place_counts;  // one row per sample
  RowSumsLayout<2> counted;

  BackwardLayout(Workspace& workspace, const ops::ClassPlaces& problem)
      : place_counts(workspace, problem.samples, problem.places), counted(workspace, 1, problem.samples) {}
};

void launch_dice(const Launcher& launcher, const ops::ClassPlaces& problem, const OpOperands& operands,
                 const ForwardLayout& layout, double smooth) {
  using namespace ops::class_loss;
  const auto* const targets = read_pointer<std::int32_t>(operands, kForward.read(kTargets));
  launch_row_sums(launcher, PlaceCounts{.targets = targets, .places = problem.places}, layout.place_counts);
  launch_row_sums(launcher,
                  ClassSums{.logits = read_pointer<float>(operands, kForward.read(kLogits)),
                            .targets = targets,
                            .log_sums = layout.of_classes.log_sums,
                            .places = problem.places,
                            .classes = problem.classes},
                  layout.class_sums);
  launch_row_sums(launcher,
                  DiceCoefficients{.class_sums = layout.class_sums.sums,
                                   .place_counts = layout.place_counts.sums,
                                   .classes = problem.classes,
                                   .smooth = smooth},
                  layout.dice);
  const bool training = operands.writes.size() > 1;
  if (training) {
    launcher.launch(StoreDice{.class_sums = layout.class_sums.sums,
                              .classes = problem.classes,
                              .smooth = smooth,
                              .saved = write_pointer<float>(operands, kForward.write(kDice)),
                              .elements = problem.samples * problem.classes});
  }
}

OpKernel forward_kernel(const ops::ClassPlaces& problem, double smooth) {
  using namespace ops::class_loss;
  return [=](const OpOperands& operands, const StepScalars&, const Launcher& launcher) {
    Workspace workspace(operands.workspace.begin);
    const ForwardLayout layout(workspace, problem);
    launch_place_metrics(launcher, problem, operands, layout.of_classes);
    launch_dice(launcher, problem, operands, layout, smooth);
    launcher.launch(StoreMetrics{.sums = layout.of_classes.metrics.sums,
                                 .dice = layout.dice.sums,
                                 .metrics = write_pointer<float>(operands, kForward.write(kMetrics))});
    launch_probabilities(launcher, problem, operands, layout.of_classes);
  };
}

OpKernel backward_kernel(const ops::ClassPlaces& problem, double weight) {
  using namespace ops::class_loss;
  return [=](const OpOperands& operands, const StepScalars&, const Launcher& launcher) {
    Workspace workspace(operands.workspace.begin);
    const BackwardLayout layout(workspace, problem);
    const auto* const targets = read_pointer<std::int32_t>(operands, kBackward.read(kTargets));
    launch_row_sums(launcher, PlaceCounts{.targets = targets, .places = problem.places}, layout.place_counts);
    launch_row_sums(launcher, SampleCounts{.place_counts = layout.place_counts.sums}, layout.counted);
    launcher.launch(
        DiceGradient{.probabilities = read_pointer<float>(operands, kBackward.read(kProbabilities)),
                     .targets = targets,
                     .dice = read_pointer<float>(operands, kBackward.read(kDice)),
                     .counted = layout.counted.sums,
                     .gradient = write_pointer<float>(operands, kBackward.write(kDLogits)),
                     .places = Divisor(problem.places),
                     .classes = problem.classes,
                     .weight = weight,
                     .elements = problem.samples * problem.places});
  };
}

}  // namespace

LayerRecipe make_recipe(const DiceCrossEntropySpec& spec, const LayerTypes& types, Mode mode) {
  const ops::ClassPlaces problem(types.inputs, kName);
  ops::require_fp32_channels_last(types.inputs.first(1), kName);
  return ops::standard_recipe(spec, types, mode,
                              {.forward = own_algorithm(workspace_bytes<ForwardLayout>(problem)),
                               .backward = own_algorithm(workspace_bytes<BackwardLayout>(problem))});
}

OpKernel make_kernel(const DiceCrossEntropySpec& spec, const KernelRequest& request) {
  const ops::ClassPlaces problem(request.op.layer_inputs, kName);
  return request.op.direction == Direction::kForward
             ? forward_kernel(problem, static_cast<double>(spec.smooth))
             : backward_kernel(problem, static_cast<double>(spec.weight));
}

}  // namespace vdnn::cuda
