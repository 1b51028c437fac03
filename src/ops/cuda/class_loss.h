#pragma once
// What losses over classes share: a pass over the logits leaves the log of each place's sum of exponentials
// in the workspace, from which metrics, probabilities and sums over classes are computed.

#include "src/ops/cuda/sums.h"
#include "src/ops/standard_losses.h"

namespace vdnn::cuda {

struct ClassLossLayout {
  double* log_sums;        // a place
  std::uint64_t* largest;  // a place
  RowSumsLayout<3> metrics;

  ClassLossLayout(Workspace& workspace, const ops::ClassPlaces& problem)
      : log_sums(workspace.take<double>(problem.samples * problem.places)),
        largest(workspace.take<std::uint64_t>(problem.samples * problem.places)),
        metrics(workspace, 1, problem.samples * problem.places) {}
};

// Reads logits and targets, makes log sums and metrics.
void launch_place_metrics(const Launcher& launcher, const ops::ClassPlaces& problem,
                          const OpOperands& operands, const ClassLossLayout& layout);
// In training: write 1, which may be the memory of the logits, so after all else that reads them.
void launch_probabilities(const Launcher& launcher, const ops::ClassPlaces& problem,
                          const OpOperands& operands, const ClassLossLayout& layout);

}  // namespace vdnn::cuda
