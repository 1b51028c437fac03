#include "src/ops/cuda/class_loss.h"

#include "src/ops/layer_operands.h"

namespace vdnn::cuda {

void launch_place_metrics(const Launcher& launcher, const ops::ClassPlaces& problem,
                          const OpOperands& operands, const ClassLossLayout& layout) {
  using namespace ops::class_loss;
  const float* const logits = read_pointer<float>(operands, kForward.read(kLogits));
  launcher.launch(LogSums{.logits = logits,
                          .places = problem.samples * problem.places,
                          .classes = problem.classes,
                          .lanes = LogSums::lanes_for(problem.classes),
                          .log_sums = layout.log_sums,
                          .largest = layout.largest});
  launch_row_sums(launcher,
                  PlaceMetrics{.logits = logits,
                               .targets = read_pointer<std::int32_t>(operands, kForward.read(kTargets)),
                               .log_sums = layout.log_sums,
                               .largest = layout.largest,
                               .classes = problem.classes},
                  layout.metrics);
}

void launch_probabilities(const Launcher& launcher, const ops::ClassPlaces& problem,
                          const OpOperands& operands, const ClassLossLayout& layout) {
  using namespace ops::class_loss;
  if (operands.writes.size() > 1) {
    launcher.launch(
        Probabilities{.logits = read_pointer<float>(operands, kForward.read(kLogits)),
                      .log_sums = layout.log_sums,
                      .probabilities = write_pointer<float>(operands, kForward.write(kProbabilities)),
                      .classes = Divisor(problem.classes),
                      .elements = problem.samples * problem.places * problem.classes});
  }
}

}  // namespace vdnn::cuda
