#pragma once
// Launches shared by losses over classes. One pass over the logits writes the log of each place's sum of
// exponentials to the workspace. Metrics, probabilities and sums over classes are computed from these logs.

#include "src/ops/cuda/sums.h"
#include "src/ops/standard_losses.h"

namespace vdnn::cuda {

struct ClassLossLayout {
  double* log_sums;        // one per place
  std::uint64_t* largest;  // one per place
  RowSumsLayout<3> metrics;

  ClassLossLayout(Workspace& workspace, const ops::ClassPlaces& problem)
      : log_sums(workspace.take<double>(problem.samples * problem.places)),
        largest(workspace.take<std::uint64_t>(problem.samples * problem.places)),
        metrics(workspace, 1, problem.samples * problem.places) {}
};

// Reads logits and targets, and writes log sums and metrics to the workspace.
void launch_place_metrics(const Launcher& launcher, const ops::ClassPlaces& problem,
                          const OpOperands& operands, const ClassLossLayout& layout);
// Writes the probabilities; for training only. Launch it last, since probabilities may overwrite the logits.
void launch_probabilities(const Launcher& launcher, const ops::ClassPlaces& problem,
                          const OpOperands& operands, const ClassLossLayout& layout);

}  // namespace vdnn::cuda
