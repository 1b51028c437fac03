#include "src/ops/cpu/synchronized_batch_normalization.h"

#include <cmath>

#include "src/ops/cpu/channel_sums.h"
#include "src/ops/cpu/recipes.h"
#include "src/ops/layer_operands.h"
#include "src/ops/standard_recipes.h"

namespace vdnn::cpu {

namespace {

namespace position = ops::synchronized;

// The layer as all kernels in this file see it: this rank's batch counts as one sample.
struct Problem {
  int threads;
  double epsilon;
  double ranks;
  ChannelGeometry geometry;

  Problem(const Context& context, const BatchNormalizationSpec& spec, const TensorType& type)
      : threads(context.threads),
        epsilon(static_cast<double>(spec.epsilon)),
        ranks(static_cast<double>(spec.ranks)),
        geometry(type, true) {}

  // Elements of a channel on this rank.
  double elements() const {
    return static_cast<double>(geometry.elements) / static_cast<double>(geometry.channels);
  }
  double reciprocal_deviation(float variance) const {
    return 1 / std::sqrt(static_cast<double>(variance) + epsilon);
  }
};

class StatisticsKernel final : public CpuKernel {
 public:
  explicit StatisticsKernel(const Problem& problem) : problem_(problem) {}

  void run(const OpOperands& operands, const StepScalars&) override {
    using namespace ops::normalization;
    const float* const x = read_pointer<float>(operands, kStatistics.read(kX));
    float* const share = write_pointer<float>(operands, kStatistics.write(kMean));
    float* const own_mean = write_pointer<float>(operands, kStatistics.write(kOwnMean));
    float* const own_variance = write_pointer<float>(operands, kStatistics.write(kOwnVariance));
    const ChannelWorkspace workspace(problem_.geometry, operands.workspace);
    add_up(problem_.geometry, problem_.threads, x, x, workspace);
    for (std::uint64_t c = 0; c < problem_.geometry.channels; ++c) {
      const double mean = workspace.sums(0, 0, 0)[c] / problem_.elements();
      const double variance = workspace.sums(0, 0, 1)[c] / problem_.elements() - mean * mean;
      share[c] = static_cast<float>(mean / problem_.ranks);
      own_mean[c] = static_cast<float>(mean);
      own_variance[c] = static_cast<float>(variance < 0 ? 0 : variance);
    }
  }

 private:
  Problem problem_;
};

class VarianceKernel final : public CpuKernel {
 public:
  explicit VarianceKernel(const Problem& problem) : problem_(problem) {}

  void run(const OpOperands& operands, const StepScalars&) override {
    using namespace ops::normalization;
    const float* const mean = read_pointer<float>(operands, kVarianceShare.read(kMean));
    const float* const own_mean = read_pointer<float>(operands, kVarianceShare.read(kOwnMean));
    const float* const own_variance = read_pointer<float>(operands, kVarianceShare.read(kOwnVariance));
    float* const share = write_pointer<float>(operands, kVarianceShare.write(kVariance));
    for (std::uint64_t c = 0; c < problem_.geometry.channels; ++c) {
      const double off = static_cast<double>(own_mean[c]) - static_cast<double>(mean[c]);
      share[c] = static_cast<float>((static_cast<double>(own_variance[c]) + off * off) / problem_.ranks);
    }
  }

 private:
  Problem problem_;
};

// Computes, with z = (x - mean) / sqrt(variance + epsilon), the sums of dY z and of dY, and their means.
class SumsKernel final : public CpuKernel {
 public:
  explicit SumsKernel(const Problem& problem) : problem_(problem) {}

  void run(const OpOperands& operands, const StepScalars&) override {
    using namespace ops::normalization;
    const float* const mean = read_pointer<float>(operands, kSums.read(kMean));
    const float* const variance = read_pointer<float>(operands, kSums.read(kVariance));
    float* const means = write_pointer<float>(operands, kSums.write(kGradientMeans));
    float* const scale_gradient = write_pointer<float>(operands, kSums.write(kDScale));
    float* const shift_gradient = write_pointer<float>(operands, kSums.write(kDShift));
    const ChannelWorkspace workspace(problem_.geometry, operands.workspace);
    add_up(problem_.geometry, problem_.threads, read_pointer<float>(operands, kSums.read(kDY)),
           read_pointer<float>(operands, kSums.read(kX)), workspace);
    const std::uint64_t channels = problem_.geometry.channels;
    const double elements = problem_.elements() * problem_.ranks;
    for (std::uint64_t c = 0; c < channels; ++c) {
      const double of_dy = workspace.sums(0, 0, 0)[c];
      const double of_product = (workspace.sums(0, 0, 1)[c] - static_cast<double>(mean[c]) * of_dy) *
                                problem_.reciprocal_deviation(variance[c]);
      means[c] = static_cast<float>(of_dy / elements);
      means[channels + c] = static_cast<float>(of_product / elements);
      scale_gradient[c] = static_cast<float>(of_product);
      shift_gradient[c] = static_cast<float>(of_dy);
    }
  }

 private:
  Problem problem_;
};

// dX = scale r (dY - mean(dY) - z mean(dY z)), where r is the reciprocal deviation.
class GradientKernel final : public CpuKernel {
 public:
  explicit GradientKernel(const Problem& problem) : problem_(problem) {}

  void run(const OpOperands& operands, const StepScalars&) override {
    using namespace ops::normalization;
    const float* const x = read_pointer<float>(operands, kGradient.read(kX));
    const float* const dy = read_pointer<float>(operands, kGradient.read(kDY));
    float* const dx = write_pointer<float>(operands, kGradient.write(kDX));
    const ChannelWorkspace workspace(problem_.geometry, operands.workspace);
    find_coefficients(operands, workspace);
    const float* const mean = workspace.coefficients(0, 0);
    const float* const of_dy = workspace.coefficients(0, 1);
    const float* const of_x = workspace.coefficients(0, 2);
    const float* const constant = workspace.coefficients(0, 3);
    for_each_block(
        problem_.geometry, problem_.threads,
        [&](std::uint64_t, std::uint64_t, std::uint64_t first, std::uint64_t count) {
          for_each_row(problem_.geometry, first, count, [=](std::uint64_t row, std::uint64_t lanes) {
#pragma omp simd
            for (std::uint64_t lane = 0; lane < lanes; ++lane) {
              dx[row + lane] =
                  of_dy[lane] * dy[row + lane] + (of_x[lane] * (x[row + lane] - mean[lane]) + constant[lane]);
            }
          });
        });
  }

 private:
  void find_coefficients(const OpOperands& operands, const ChannelWorkspace& workspace) const {
    using namespace ops::normalization;
    const float* const mean = read_pointer<float>(operands, kGradient.read(kMean));
    const float* const variance = read_pointer<float>(operands, kGradient.read(kVariance));
    const float* const scale = read_pointer<float>(operands, kGradient.read(kScale));
    const float* const means = read_pointer<float>(operands, kGradient.read(kGradientMeans));
    const std::uint64_t channels = problem_.geometry.channels;
    for (std::uint64_t c = 0; c < channels; ++c) {
      const double r = problem_.reciprocal_deviation(variance[c]);
      const double of_dy = r * static_cast<double>(scale[c]);
      workspace.set_coefficient(0, 0, c, static_cast<double>(mean[c]));
      workspace.set_coefficient(0, 1, c, of_dy);
      workspace.set_coefficient(0, 2, c, -of_dy * r * static_cast<double>(means[channels + c]));
      workspace.set_coefficient(0, 3, c, -of_dy * static_cast<double>(means[c]));
    }
  }

  Problem problem_;
};

}  // namespace

void set_synchronized_algorithms(LayerRecipe& recipe, const TensorType& type) {
  const std::uint64_t bytes = ChannelWorkspace::bytes(ChannelGeometry(type, true));
  recipe.forward[position::kStatistics].algorithms = own_algorithm(bytes);
  recipe.forward[position::kVariance].algorithms = own_algorithm();
  recipe.backward[position::kSums].algorithms = own_algorithm(bytes);
  recipe.backward[position::kGradient].algorithms = own_algorithm(bytes);
}

std::unique_ptr<CpuKernel> make_synchronized_kernel(const Context& context,
                                                    const BatchNormalizationSpec& spec, const Op& op) {
  const Problem problem(context, spec, op.layer_inputs[0]);
  if (op.phase == Phase::kForward) {
    if (op.position == position::kStatistics) {
      return std::make_unique<StatisticsKernel>(problem);
    }
    return std::make_unique<VarianceKernel>(problem);
  }
  if (op.position == position::kSums) {
    return std::make_unique<SumsKernel>(problem);
  }
  return std::make_unique<GradientKernel>(problem);
}

}  // namespace vdnn::cpu
