// Softmax cross-entropy, with exponentials and sums in double. Places are processed in pieces
// (class_places.h); a batch without spatial dimensions is one piece unless it is very large.

#include "src/ops/cpu/class_places.h"
#include "src/ops/cpu/layer_ops.h"
#include "src/ops/cpu/loops.h"
#include "src/ops/cpu/recipes.h"
#include "src/ops/layer_operands.h"

namespace vdnn::cpu {

namespace {

constexpr std::string_view kName = "softmax cross-entropy";

std::uint64_t pieces_of(const ops::ClassPlaces& problem) {
  return piece_count(problem.samples * problem.places, kPlacesPerPiece);
}

// Bytes for the sums of all pieces; 0 for a single piece.
std::uint64_t workspace_bytes(const ops::ClassPlaces& problem) {
  const std::uint64_t pieces = pieces_of(problem);
  return pieces > 1 ? pieces * sizeof(ClassMetrics) : 0;
}

class ForwardKernel final : public CpuKernel {
 public:
  ForwardKernel(const Context& context, const ops::ClassPlaces& problem)
      : threads_(context.threads), problem_(problem) {}

  void run(const OpOperands& operands, const StepScalars&) override {
    using namespace ops::class_loss;
    const std::span<const std::int32_t> targets = checked_targets(problem_, operands);
    const float* const logits = read_pointer<float>(operands, kForward.read(kLogits));
    const bool training = operands.writes.size() > 1;
    float* const probabilities =
        training ? write_pointer<float>(operands, kForward.write(kProbabilities)) : nullptr;
    const std::uint64_t pieces = pieces_of(problem_);
    ClassMetrics single;
    ClassMetrics* const partial = pieces > 1 ? pointer_to<ClassMetrics>(operands.workspace.begin) : &single;
    for_each_piece(targets.size(), kPlacesPerPiece, threads_,
                   [&](std::uint64_t piece, std::uint64_t begin, std::uint64_t end) {
                     partial[piece] = run_piece(logits, targets, probabilities, begin, end);
                   });
    ClassMetrics sum;
    for (std::uint64_t piece = 0; piece < pieces; ++piece) {
      sum.add(partial[piece]);
    }
    sum.store(write_pointer<float>(operands, kForward.write(kMetrics)));
  }

 private:
  ClassMetrics run_piece(const float* logits, std::span<const std::int32_t> targets, float* probabilities,
                         std::uint64_t begin, std::uint64_t end) const {
    ClassMetrics metrics;
    for (std::uint64_t place = begin; place < end; ++place) {
      const std::span place_logits(logits + place * problem_.classes, problem_.classes);
      const Row row(place_logits);
      if (counts(targets[place])) {
        metrics.add(row, place_logits, targets[place]);
      }
      // The probabilities are written last, since they may overwrite the row.
      for (std::uint64_t k = 0; probabilities != nullptr && k < problem_.classes; ++k) {
        probabilities[place * problem_.classes + k] = static_cast<float>(probability(place_logits[k], row));
      }
    }
    return metrics;
  }

  int threads_;
  ops::ClassPlaces problem_;
};

// dX = weight (p - onehot) / places that count.
class BackwardKernel final : public CpuKernel {
 public:
  BackwardKernel(const Context& context, const ops::ClassPlaces& problem, float weight)
      : threads_(context.threads), problem_(problem), weight_(static_cast<double>(weight)) {}

  void run(const OpOperands& operands, const StepScalars&) override {
    using namespace ops::class_loss;
    const std::span targets(read_pointer<std::int32_t>(operands, kBackward.read(kTargets)),
                            problem_.samples * problem_.places);
    const double counted = count_places(targets);
    const float* const probabilities = read_pointer<float>(operands, kBackward.read(kProbabilities));
    float* const gradient = write_pointer<float>(operands, kBackward.write(kDLogits));
    for_each_piece(targets.size(), kPlacesPerPiece, threads_,
                   [&](std::uint64_t, std::uint64_t begin, std::uint64_t end) {
                     for (std::uint64_t place = begin; place < end; ++place) {
                       run_place(probabilities + place * problem_.classes, targets[place], counted,
                                 gradient + place * problem_.classes);
                     }
                   });
  }

 private:
  void run_place(const float* probabilities, std::int32_t target, double counted, float* gradient) const {
    for (std::uint64_t k = 0; k < problem_.classes; ++k) {
      const double hit = static_cast<std::uint64_t>(target) == k ? 1 : 0;
      gradient[k] =
          counts(target)
              ? static_cast<float>(weight_ * ((static_cast<double>(probabilities[k]) - hit) / counted))
              : 0;
    }
  }

  int threads_;
  ops::ClassPlaces problem_;
  double weight_;
};

}  // namespace

LayerRecipe make_recipe(const Context&, const SoftmaxCrossEntropySpec& spec, const LayerTypes& types,
                        Mode mode) {
  const ops::ClassPlaces problem(types.inputs, kName);
  require_fp32_channels_last(types.inputs.first(1), kName);
  return ops::standard_recipe(
      spec, types, mode, {.forward = own_algorithm(workspace_bytes(problem)), .backward = own_algorithm()});
}

std::unique_ptr<CpuKernel> make_kernel(const Context& context, const SoftmaxCrossEntropySpec& spec,
                                       const KernelRequest& request) {
  const ops::ClassPlaces problem(request.op.layer_inputs, kName);
  if (request.op.direction == Direction::kForward) {
    return std::make_unique<ForwardKernel>(context, problem);
  }
  return std::make_unique<BackwardKernel>(context, problem, spec.weight);
}

}  // namespace vdnn::cpu
