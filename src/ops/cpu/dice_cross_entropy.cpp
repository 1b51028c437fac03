// Cross-entropy and soft Dice, with one pass over the probabilities in each direction. For sample n and class
// k, with sums over the places that count (t is 1 at the target's class, else 0):
//
//   a = 2 sum p t + smooth, b = sum p + sum t + smooth, Dice = a / b
//   loss = mean cross-entropy + 1 - (1 / N K) sum of a / b, over the N samples with a place that counts
//   d loss / d p = g = (1 / N K) (a / b - 2 t) / b
//   d loss / d x = (p - t) / counted + p (g - sum of g p over the classes)
//
// The forward pass saves a and b, so that the backward pass needs no sums over places. All sums are in
// double: first within pieces of a sample's places, then over the pieces in order.

#include <algorithm>

#include "src/ops/cpu/class_places.h"
#include "src/ops/cpu/layer_ops.h"
#include "src/ops/cpu/loops.h"
#include "src/ops/cpu/recipes.h"
#include "src/ops/layer_operands.h"

namespace vdnn::cpu {

namespace {

constexpr std::string_view kName = "dice cross-entropy";

// False for a sample without a place that counts, whose coefficients would be smooth / smooth.
bool sample_counts(const ops::ClassPlaces& problem, std::span<const std::int32_t> targets,
                   std::uint64_t sample) {
  return std::ranges::any_of(targets.subspan(sample * problem.places, problem.places), counts);
}

// The number of coefficients, N K in the formulas.
double count_coefficients(const ops::ClassPlaces& problem, std::span<const std::int32_t> targets) {
  std::uint64_t samples = 0;
  for (std::uint64_t sample = 0; sample < problem.samples; ++sample) {
    samples += sample_counts(problem, targets, sample) ? 1 : 0;
  }
  return static_cast<double>(samples * problem.classes);
}

// Divides a batch's places into pieces, each within one sample.
class Pieces {
 public:
  explicit Pieces(const ops::ClassPlaces& problem)
      : places_(problem.places),
        of_sample_(piece_count(problem.places, kPlacesPerPiece)),
        count_(problem.samples * of_sample_) {}

  std::uint64_t count() const { return count_; }
  std::uint64_t of_sample() const { return of_sample_; }
  std::uint64_t sample(std::uint64_t piece) const { return piece / of_sample_; }
  // First place of a piece, counted over the batch.
  std::uint64_t begin(std::uint64_t piece) const {
    return sample(piece) * places_ + piece % of_sample_ * kPlacesPerPiece;
  }
  std::uint64_t end(std::uint64_t piece) const {
    return std::min(begin(piece) + kPlacesPerPiece, (sample(piece) + 1) * places_);
  }

 private:
  std::uint64_t places_;
  std::uint64_t of_sample_;
  std::uint64_t count_;
};

// The sums of one piece for one class.
struct ClassSums {
  double hits = 0;           // p t
  double probabilities = 0;  // p
  double targets = 0;        // t

  void add(const ClassSums& other) {
    hits += other.hits;
    probabilities += other.probabilities;
    targets += other.targets;
  }
};

// Bytes for both kinds of sums of each piece.
std::uint64_t workspace_bytes(const ops::ClassPlaces& problem) {
  return Pieces(problem).count() * (sizeof(ClassMetrics) + problem.classes * sizeof(ClassSums));
}

class ForwardKernel final : public CpuKernel {
 public:
  ForwardKernel(const Context& context, const ops::ClassPlaces& problem, float smooth)
      : threads_(context.threads),
        problem_(problem),
        pieces_(problem),
        smooth_(static_cast<double>(smooth)) {}

  void run(const OpOperands& operands, const StepScalars&) override {
    using namespace ops::class_loss;
    const std::span<const std::int32_t> targets = checked_targets(problem_, operands);
    const bool training = operands.writes.size() > 1;
    const float* const logits = read_pointer<float>(operands, kForward.read(kLogits));
    float* const probabilities =
        training ? write_pointer<float>(operands, kForward.write(kProbabilities)) : nullptr;
    float* const dice = training ? write_pointer<float>(operands, kForward.write(kDice)) : nullptr;
    auto* const metrics = pointer_to<ClassMetrics>(operands.workspace.begin);
    auto* const sums =
        pointer_to<ClassSums>(operands.workspace.begin + pieces_.count() * sizeof(ClassMetrics));
    for_each_piece(pieces_.count(), 1, threads_, [&](std::uint64_t piece, std::uint64_t, std::uint64_t) {
      metrics[piece] = run_piece(logits, targets, probabilities, piece,
                                 std::span(sums + piece * problem_.classes, problem_.classes));
    });
    ClassMetrics sum;
    for (std::uint64_t piece = 0; piece < pieces_.count(); ++piece) {
      sum.add(metrics[piece]);
    }
    sum.store(write_pointer<float>(operands, kForward.write(kMetrics)), dice_loss(targets, sums, dice));
  }

 private:
  ClassMetrics run_piece(const float* logits, std::span<const std::int32_t> targets, float* probabilities,
                         std::uint64_t piece, std::span<ClassSums> sums) const {
    ClassMetrics metrics;
    std::ranges::fill(sums, ClassSums{});
    for (std::uint64_t place = pieces_.begin(piece); place < pieces_.end(piece); ++place) {
      const std::span place_logits(logits + place * problem_.classes, problem_.classes);
      const Row row(place_logits);
      const std::int32_t target = targets[place];
      if (counts(target)) {
        metrics.add(row, place_logits, target);
        sums[static_cast<std::size_t>(target)].targets += 1;
      }
      // The probabilities are written last, since they may overwrite the row.
      for (std::uint64_t k = 0; k < problem_.classes; ++k) {
        const double p = probability(place_logits[k], row);
        if (counts(target)) {
          sums[k].probabilities += p;
          sums[k].hits += static_cast<std::uint64_t>(target) == k ? p : 0;
        }
        if (probabilities != nullptr) {
          probabilities[place * problem_.classes + k] = static_cast<float>(p);
        }
      }
    }
    return metrics;
  }

  // Returns 1 minus the mean of Dice over samples and classes. Writes the numerators a and denominators b to
  // `saved`.
  double dice_loss(std::span<const std::int32_t> targets, const ClassSums* sums, float* saved) const {
    double dice = 0;
    for (std::uint64_t sample = 0; sample < problem_.samples; ++sample) {
      const bool in_mean = sample_counts(problem_, targets, sample);
      for (std::uint64_t k = 0; k < problem_.classes; ++k) {
        ClassSums sum;
        for (std::uint64_t i = 0; i < pieces_.of_sample(); ++i) {
          sum.add(sums[(sample * pieces_.of_sample() + i) * problem_.classes + k]);
        }
        const double numerator = 2 * sum.hits + smooth_;
        const double denominator = sum.probabilities + sum.targets + smooth_;
        dice += in_mean ? numerator / denominator : 0;
        if (saved != nullptr) {
          saved[2 * sample * problem_.classes + k] = static_cast<float>(numerator);
          saved[(2 * sample + 1) * problem_.classes + k] = static_cast<float>(denominator);
        }
      }
    }
    const double coefficients = count_coefficients(problem_, targets);
    return coefficients > 0 ? 1 - dice / coefficients : 0;
  }

  int threads_;
  ops::ClassPlaces problem_;
  Pieces pieces_;
  double smooth_;
};

class BackwardKernel final : public CpuKernel {
 public:
  BackwardKernel(const Context& context, const ops::ClassPlaces& problem, float weight)
      : threads_(context.threads), problem_(problem), weight_(static_cast<double>(weight)) {}

  void run(const OpOperands& operands, const StepScalars&) override {
    using namespace ops::class_loss;
    const std::span targets(read_pointer<std::int32_t>(operands, kBackward.read(kTargets)),
                            problem_.samples * problem_.places);
    const Counts counted{.places = count_places(targets),
                         .coefficients = count_coefficients(problem_, targets)};
    const float* const probabilities = read_pointer<float>(operands, kBackward.read(kProbabilities));
    const float* const dice = read_pointer<float>(operands, kBackward.read(kDice));
    float* const gradient = write_pointer<float>(operands, kBackward.write(kDLogits));
    const std::uint64_t classes = problem_.classes;
    for_each_piece(targets.size(), kPlacesPerPiece, threads_,
                   [&](std::uint64_t, std::uint64_t begin, std::uint64_t end) {
                     for (std::uint64_t place = begin; place < end; ++place) {
                       const float* const sample_dice = dice + 2 * (place / problem_.places) * classes;
                       run_place({probabilities + place * classes, classes}, targets[place], counted,
                                 sample_dice, gradient + place * classes);
                     }
                   });
  }

 private:
  // The divisors of the means.
  struct Counts {
    double places = 0;
    double coefficients = 0;
  };

  // The gradient g of the formulas, for class k.
  double slope(const float* dice, std::uint64_t k, bool hit, const Counts& counted) const {
    const auto numerator = static_cast<double>(dice[k]);
    const auto denominator = static_cast<double>(dice[problem_.classes + k]);
    return (numerator / denominator - (hit ? 2 : 0)) / denominator / counted.coefficients;
  }

  // `gradient` may overwrite `probabilities`.
  void run_place(std::span<const float> probabilities, std::int32_t target, const Counts& counted,
                 const float* dice, float* gradient) const {
    if (!counts(target)) {
      std::fill_n(gradient, problem_.classes, 0.0F);
      return;
    }
    double mean_slope = 0;
    for (std::uint64_t k = 0; k < problem_.classes; ++k) {
      mean_slope += static_cast<double>(probabilities[k]) * slope(dice, k, is(target, k), counted);
    }
    for (std::uint64_t k = 0; k < problem_.classes; ++k) {
      const auto p = static_cast<double>(probabilities[k]);
      const double cross_entropy = (p - (is(target, k) ? 1 : 0)) / counted.places;
      gradient[k] = static_cast<float>(
          weight_ * (cross_entropy + p * (slope(dice, k, is(target, k), counted) - mean_slope)));
    }
  }

  static bool is(std::int32_t target, std::uint64_t k) { return static_cast<std::uint64_t>(target) == k; }

  int threads_;
  ops::ClassPlaces problem_;
  double weight_;
};

}  // namespace

LayerRecipe make_recipe(const Context&, const DiceCrossEntropySpec& spec, const LayerTypes& types,
                        Mode mode) {
  const ops::ClassPlaces problem(types.inputs, kName);
  require_fp32_channels_last(types.inputs.first(1), kName);
  return ops::standard_recipe(
      spec, types, mode, {.forward = own_algorithm(workspace_bytes(problem)), .backward = own_algorithm()});
}

std::unique_ptr<CpuKernel> make_kernel(const Context& context, const DiceCrossEntropySpec& spec,
                                       const KernelRequest& request) {
  const ops::ClassPlaces problem(request.op.layer_inputs, kName);
  if (request.op.direction == Direction::kForward) {
    return std::make_unique<ForwardKernel>(context, problem, spec.smooth);
  }
  return std::make_unique<BackwardKernel>(context, problem, spec.weight);
}

}  // namespace vdnn::cpu
