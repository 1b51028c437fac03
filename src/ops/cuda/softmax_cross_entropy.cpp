// Softmax cross-entropy.

#include "src/ops/cuda/class_loss.h"
#include "src/ops/cuda/layer_ops.h"
#include "src/ops/layer_operands.h"

namespace vdnn::cuda {

namespace {

constexpr std::string_view kName = "softmax cross-entropy";

// The number of the batch's places that count for the loss, summed as one row.
struct BackwardLayout {
  RowSumsLayout<1> counted;

  BackwardLayout(Workspace& workspace, const ops::ClassPlaces& problem)
      : counted(workspace, 1, problem.samples * problem.places) {}
};

OpKernel forward_kernel(const ops::ClassPlaces& problem) {
  using namespace ops::class_loss;
  return [=](const OpOperands& operands, const StepScalars&, const Launcher& launcher) {
    Workspace workspace(operands.workspace.begin);
    const ClassLossLayout layout(workspace, problem);
    launch_place_metrics(launcher, problem, operands, layout);
    launcher.launch(StoreMetrics{.sums = layout.metrics.sums,
                                 .metrics = write_pointer<float>(operands, kForward.write(kMetrics))});
    launch_probabilities(launcher, problem, operands, layout);
  };
}

OpKernel backward_kernel(const ops::ClassPlaces& problem, double weight) {
  using namespace ops::class_loss;
  return [=](const OpOperands& operands, const StepScalars&, const Launcher& launcher) {
    Workspace workspace(operands.workspace.begin);
    const BackwardLayout layout(workspace, problem);
    const auto* const targets = read_pointer<std::int32_t>(operands, kBackward.read(kTargets));
    launch_row_sums(launcher, PlaceCounts{.targets = targets}, layout.counted);
    launcher.launch(
        SoftmaxGradient{.probabilities = read_pointer<float>(operands, kBackward.read(kProbabilities)),
                        .targets = targets,
                        .counted = layout.counted.sums,
                        .gradient = write_pointer<float>(operands, kBackward.write(kDLogits)),
                        .classes = Divisor(problem.classes),
                        .weight = weight,
                        .elements = problem.samples * problem.places * problem.classes});
  };
}

}  // namespace

LayerRecipe make_recipe(const SoftmaxCrossEntropySpec& spec, const LayerTypes& types, Mode mode) {
  const ops::ClassPlaces problem(types.inputs, kName);
  ops::require_fp32_channels_last(types.inputs.first(1), kName);
  return ops::standard_recipe(spec, types, mode,
                              {.forward = own_algorithm(workspace_bytes<ClassLossLayout>(problem)),
                               .backward = own_algorithm(workspace_bytes<BackwardLayout>(problem))});
}

OpKernel make_kernel(const SoftmaxCrossEntropySpec& spec, const KernelRequest& request) {
  const ops::ClassPlaces problem(request.op.layer_inputs, kName);
  return request.op.direction == Direction::kForward
             ? forward_kernel(problem)
             : backward_kernel(problem, static_cast<double>(spec.weight));
}

}  // namespace vdnn::cuda
