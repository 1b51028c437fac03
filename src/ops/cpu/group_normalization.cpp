// Group normalisation. oneDNN 2.6 does not have it, so these are our own loops (channel_sums.h), which access
// memory in order.

#include <cmath>

#include "src/ops/cpu/channel_sums.h"
#include "src/ops/cpu/formats.h"
#include "src/ops/cpu/layer_ops.h"
#include "src/ops/cpu/recipes.h"
#include "src/ops/layer_operands.h"
#include "src/ops/standard_recipes.h"

namespace vdnn::cpu {

namespace {

struct Geometry : ChannelGeometry {
  std::uint64_t groups = 0;
  std::uint64_t group_channels = 0;

  Geometry(const GroupNormalizationSpec& spec, const TensorType& type)
      : ChannelGeometry(type),
        groups(static_cast<std::uint64_t>(spec.groups)),
        group_channels(channels / groups) {}

  std::uint64_t group_elements() const { return elements / groups; }
};

template <class Format>
class ForwardKernel final : public CpuKernel {
 public:
  ForwardKernel(const Context& context, const GroupNormalizationSpec& spec, const TensorType& type)
      : threads_(context.threads), epsilon_(static_cast<double>(spec.epsilon)), geometry_(spec, type) {}

  void run(const OpOperands& operands, const StepScalars&) override {
    using namespace ops::normalization;
    const ReadElements<Format> x(operands, kForward.read(kX));
    const WriteElements<Format> y(operands, kForward.write(kY));
    const ChannelWorkspace workspace(geometry_, operands.workspace);
    add_up(geometry_, threads_, x, x, workspace);
    for (std::uint64_t sample = 0; sample < geometry_.samples; ++sample) {
      for (std::uint64_t group = 0; group < geometry_.groups; ++group) {
        find_statistics(operands, workspace, sample, group);
      }
    }
    for_each_block(geometry_, threads_,
                   [&](std::uint64_t sample, std::uint64_t, std::uint64_t first, std::uint64_t count) {
                     const float* const mean = workspace.coefficients(sample, 0);
                     const float* const factor = workspace.coefficients(sample, 1);
                     const float* const shift = workspace.coefficients(sample, 2);
                     for_each_row(geometry_, first, count, [=](std::uint64_t row, std::uint64_t lanes) {
#pragma omp simd
                       for (std::uint64_t lane = 0; lane < lanes; ++lane) {
                         y.set(row + lane, (x[row + lane] - mean[lane]) * factor[lane] + shift[lane]);
                       }
                     });
                   });
  }

 private:
  void find_statistics(const OpOperands& operands, const ChannelWorkspace& workspace, std::uint64_t sample,
                       std::uint64_t group) const {
    using namespace ops::normalization;
    const double* const sums = workspace.sums(sample, 0, 0);
    const double* const squares = workspace.sums(sample, 0, 1);
    const std::uint64_t begin = group * geometry_.group_channels;
    const std::uint64_t end = begin + geometry_.group_channels;
    double sum = 0;
    double square = 0;
    for (std::uint64_t channel = begin; channel < end; ++channel) {
      sum += sums[channel];
      square += squares[channel];
    }
    const auto elements = static_cast<double>(geometry_.group_elements());
    const double exact_mean = sum / elements;
    const double variance = square / elements - exact_mean * exact_mean;
    // The forward pass uses the rounded numbers that it saves, so that the backward pass computes with the
    // same numbers.
    const auto mean = static_cast<float>(exact_mean);
    const auto reciprocal_deviation =
        static_cast<float>(1 / std::sqrt((variance < 0 ? 0 : variance) + epsilon_));
    if (operands.writes.size() > 1) {
      const std::uint64_t index = sample * geometry_.groups + group;
      write_pointer<float>(operands, kForward.write(kMean))[index] = mean;
      write_pointer<float>(operands, kForward.write(kReciprocalDeviation))[index] = reciprocal_deviation;
    }
    const float* const scale = read_pointer<float>(operands, kForward.read(kScale));
    const float* const shift = read_pointer<float>(operands, kForward.read(kShift));
    for (std::uint64_t channel = begin; channel < end; ++channel) {
      workspace.set_coefficient(sample, 0, channel, mean);
      workspace.set_coefficient(sample, 1, channel, reciprocal_deviation * scale[channel]);
      workspace.set_coefficient(sample, 2, channel, shift[channel]);
    }
  }

  int threads_;
  double epsilon_;
  Geometry geometry_;
};

// With the reciprocal deviation r, the normalised value z = (x - mean) r, its gradient g = scale dY, and
// means over the group: dX = r (g - mean(g) - z mean(g z)); dscale = sum of dY z, dshift = sum of dY.
template <class Format>
class BackwardKernel final : public CpuKernel {
 public:
  BackwardKernel(const Context& context, const GroupNormalizationSpec& spec, const TensorType& type)
      : threads_(context.threads), geometry_(spec, type) {}

  void run(const OpOperands& operands, const StepScalars&) override {
    using namespace ops::normalization;
    const ReadElements<Format> x(operands, kBackward.read(kX));
    const ReadElements<Format> dy(operands, kBackward.read(kDY));
    const WriteElements<Format> dx(operands, kBackward.write(kDX));
    const ChannelWorkspace workspace(geometry_, operands.workspace);
    add_up(geometry_, threads_, dy, x, workspace);
    for (std::uint64_t channel = 0; channel < geometry_.channels; ++channel) {
      find_parameter_gradients(operands, workspace, channel);
    }
    for (std::uint64_t sample = 0; sample < geometry_.samples; ++sample) {
      for (std::uint64_t group = 0; group < geometry_.groups; ++group) {
        find_coefficients(operands, workspace, sample, group);
      }
    }
    for_each_block(geometry_, threads_,
                   [&](std::uint64_t sample, std::uint64_t, std::uint64_t first, std::uint64_t count) {
                     const float* const mean = workspace.coefficients(sample, 0);
                     const float* const of_dy = workspace.coefficients(sample, 1);
                     const float* const of_x = workspace.coefficients(sample, 2);
                     const float* const constant = workspace.coefficients(sample, 3);
                     for_each_row(geometry_, first, count, [=](std::uint64_t row, std::uint64_t lanes) {
#pragma omp simd
                       for (std::uint64_t lane = 0; lane < lanes; ++lane) {
                         dx.set(row + lane, of_dy[lane] * dy[row + lane] +
                                                (of_x[lane] * (x[row + lane] - mean[lane]) + constant[lane]));
                       }
                     });
                   });
  }

 private:
  struct Statistics {
    double mean = 0;
    double reciprocal_deviation = 0;
  };
  Statistics statistics(const OpOperands& operands, std::uint64_t sample, std::uint64_t group) const {
    using namespace ops::normalization;
    const std::uint64_t index = sample * geometry_.groups + group;
    const float* const mean = read_pointer<float>(operands, kBackward.read(kMean));
    const float* const deviation = read_pointer<float>(operands, kBackward.read(kReciprocalDeviation));
    return {.mean = static_cast<double>(mean[index]),
            .reciprocal_deviation = static_cast<double>(deviation[index])};
  }

  // Replaces the sums of dY x by the sums of dY z.
  void find_parameter_gradients(const OpOperands& operands, const ChannelWorkspace& workspace,
                                std::uint64_t channel) const {
    using namespace ops::normalization;
    double scale_gradient = 0;
    double shift_gradient = 0;
    for (std::uint64_t sample = 0; sample < geometry_.samples; ++sample) {
      const Statistics of = statistics(operands, sample, channel / geometry_.group_channels);
      const double sum = workspace.sums(sample, 0, 0)[channel];
      double& product = workspace.sums(sample, 0, 1)[channel];
      product = (product - of.mean * sum) * of.reciprocal_deviation;
      scale_gradient += product;
      shift_gradient += sum;
    }
    write_pointer<float>(operands, kBackward.write(kDScale))[channel] = static_cast<float>(scale_gradient);
    write_pointer<float>(operands, kBackward.write(kDShift))[channel] = static_cast<float>(shift_gradient);
  }

  void find_coefficients(const OpOperands& operands, const ChannelWorkspace& workspace, std::uint64_t sample,
                         std::uint64_t group) const {
    using namespace ops::normalization;
    const float* const scale = read_pointer<float>(operands, kBackward.read(kScale));
    const double* const sums = workspace.sums(sample, 0, 0);
    const double* const products = workspace.sums(sample, 0, 1);
    const std::uint64_t begin = group * geometry_.group_channels;
    const std::uint64_t end = begin + geometry_.group_channels;
    double mean_of_g = 0;
    double mean_of_gz = 0;
    for (std::uint64_t channel = begin; channel < end; ++channel) {
      mean_of_g += static_cast<double>(scale[channel]) * sums[channel];
      mean_of_gz += static_cast<double>(scale[channel]) * products[channel];
    }
    const auto elements = static_cast<double>(geometry_.group_elements());
    mean_of_g /= elements;
    mean_of_gz /= elements;
    const auto [mean, r] = statistics(operands, sample, group);
    for (std::uint64_t channel = begin; channel < end; ++channel) {
      workspace.set_coefficient(sample, 0, channel, mean);
      workspace.set_coefficient(sample, 1, channel, r * static_cast<double>(scale[channel]));
      workspace.set_coefficient(sample, 2, channel, -r * r * mean_of_gz);
      workspace.set_coefficient(sample, 3, channel, -r * mean_of_g);
    }
  }

  int threads_;
  Geometry geometry_;
};

}  // namespace

LayerRecipe make_recipe(const Context&, const GroupNormalizationSpec& spec, const LayerTypes& types,
                        Mode mode) {
  // The types are checked before the workspace is computed.
  LayerRecipe recipe = ops::standard_recipe(spec, types, mode, {});
  const std::uint64_t workspace_bytes = ChannelWorkspace::bytes(Geometry(spec, types.inputs[0]));
  for (std::vector<OpRecipe>* const pass : {&recipe.forward, &recipe.backward}) {
    for (OpRecipe& op : *pass) {
      op.algorithms = own_algorithm(workspace_bytes);
    }
  }
  return recipe;
}

std::unique_ptr<CpuKernel> make_kernel(const Context& context, const GroupNormalizationSpec& spec,
                                       const KernelRequest& request) {
  const TensorType& type = request.op.layer_inputs[0];
  return with_format(type.data_type, [&]<class Format>(Format) -> std::unique_ptr<CpuKernel> {
    if (request.op.direction == Direction::kForward) {
      return std::make_unique<ForwardKernel<Format>>(context, spec, type);
    }
    return std::make_unique<BackwardKernel<Format>>(context, spec, type);
  });
}

}  // namespace vdnn::cpu
