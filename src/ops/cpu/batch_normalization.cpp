// Batch normalisation through oneDNN. Where the recipe permits it, the layer works in place: Y overwrites X
// in inference, and dX overwrites dY in training. oneDNN has no fast implementation for fewer than two
// spatial dimensions, so all maps are passed as planes of one column. With channels last, this does not
// change the order of the elements.

#include "src/ops/cpu/layer_ops.h"
#include "src/ops/cpu/loops.h"
#include "src/ops/cpu/primitive_sequence.h"
#include "src/ops/cpu/recipes.h"
#include "src/ops/cpu/synchronized_batch_normalization.h"
#include "src/ops/layer_operands.h"
#include "src/ops/standard_recipes.h"

namespace vdnn::cpu {

namespace {

using Forward = dnnl::batch_normalization_forward;
using Backward = dnnl::batch_normalization_backward;

// The layer as it is described to oneDNN.
class Problem {
 public:
  Problem(const Context& context, const BatchNormalizationSpec& spec, const TensorType& type)
      : context_(context), epsilon_(spec.epsilon) {
    const Dims& dims = type.dims;
    Dims view{dims[0], dims[1], 1, 1};
    for (std::size_t axis = 2; axis < dims.size(); ++axis) {
      view[2] *= dims[axis];
    }
    map_ = dense_desc({.data_type = type.data_type, .dims = view});
    channel_ = dense_desc({.dims = {dims[1]}});
  }

  std::vector<Implementation> forward_training() const {
    using namespace ops::normalization;
    const Forward::primitive_desc primitive = training_primitive();
    PrimitiveSequence sequence;
    sequence.append(primitive, {{DNNL_ARG_SRC, sequence.read(kForward.read(kX), map_)},
                                {DNNL_ARG_SCALE, sequence.read(kForward.read(kScale), channel_)},
                                {DNNL_ARG_SHIFT, sequence.read(kForward.read(kShift), channel_)},
                                {DNNL_ARG_DST, sequence.write(kForward.write(kY), map_)},
                                {DNNL_ARG_MEAN, sequence.write(kForward.write(kMean), channel_)},
                                {DNNL_ARG_VARIANCE, sequence.write(kForward.write(kVariance), channel_)}});
    return {{.name = primitive.impl_info_str(), .sequence = std::move(sequence)}};
  }

  // Normalises with given statistics: kInference with the running statistics, kNormalize (batches of several
  // ranks) with the statistics of all ranks' batches. Both ops have their operands in the same order.
  std::vector<Implementation> forward_inference() const {
    using namespace ops::normalization;
    const Forward::primitive_desc primitive = forward_primitive(
        dnnl::prop_kind::forward_inference, scale_and_shift() | dnnl::normalization_flags::use_global_stats);
    PrimitiveSequence sequence;
    sequence.append(primitive,
                    {{DNNL_ARG_SRC, sequence.read(kInference.read(kX), map_)},
                     {DNNL_ARG_SCALE, sequence.read(kInference.read(kScale), channel_)},
                     {DNNL_ARG_SHIFT, sequence.read(kInference.read(kShift), channel_)},
                     {DNNL_ARG_MEAN, sequence.read(kInference.read(kRunningMean), channel_)},
                     {DNNL_ARG_VARIANCE, sequence.read(kInference.read(kRunningVariance), channel_)},
                     {DNNL_ARG_DST, sequence.write(kInference.write(kY), map_)}});
    return {{.name = primitive.impl_info_str(), .sequence = std::move(sequence)}};
  }

  std::vector<Implementation> backward() const {
    using namespace ops::normalization;
    const Backward::desc desc(dnnl::prop_kind::backward, map_, map_, epsilon_, scale_and_shift());
    const Backward::primitive_desc primitive(desc, scratchpad_attributes(), context_.engine,
                                             training_primitive());
    PrimitiveSequence sequence;
    const PrimitiveSequence::PlaceIndex scale = sequence.read(kBackward.read(kScale), channel_);
    sequence.append(primitive, {{DNNL_ARG_SRC, sequence.read(kBackward.read(kX), map_)},
                                {DNNL_ARG_MEAN, sequence.read(kBackward.read(kMean), channel_)},
                                {DNNL_ARG_VARIANCE, sequence.read(kBackward.read(kVariance), channel_)},
                                {DNNL_ARG_DIFF_DST, sequence.read(kBackward.read(kDY), map_)},
                                {DNNL_ARG_SCALE, scale},
                                // oneDNN 2.6 requires a shift, though no gradient depends on it.
                                {DNNL_ARG_SHIFT, scale},
                                {DNNL_ARG_DIFF_SRC, sequence.write(kBackward.write(kDX), map_)},
                                {DNNL_ARG_DIFF_SCALE, sequence.write(kBackward.write(kDScale), channel_)},
                                {DNNL_ARG_DIFF_SHIFT, sequence.write(kBackward.write(kDShift), channel_)}});
    return {{.name = primitive.impl_info_str(), .sequence = std::move(sequence)}};
  }

 private:
  static dnnl::normalization_flags scale_and_shift() {
    return dnnl::normalization_flags::use_scale | dnnl::normalization_flags::use_shift;
  }

  Forward::primitive_desc forward_primitive(dnnl::prop_kind kind, dnnl::normalization_flags flags) const {
    return {Forward::desc(kind, map_, epsilon_, flags), scratchpad_attributes(), context_.engine};
  }
  Forward::primitive_desc training_primitive() const {
    return forward_primitive(dnnl::prop_kind::forward_training, scale_and_shift());
  }

  const Context& context_;
  float epsilon_;
  dnnl::memory::desc map_;
  dnnl::memory::desc channel_;
};

// Moves the running statistics towards those of the batch.
class FollowKernel final : public CpuKernel {
 public:
  FollowKernel(const BatchNormalizationSpec& spec, const TensorType& type)
      : momentum_(spec.momentum), channels_(static_cast<std::size_t>(type.dims[1])) {
    // oneDNN's variance is divided by n, the running variance by n - 1.
    const double elements = static_cast<double>(type.elements()) / static_cast<double>(channels_) *
                            static_cast<double>(spec.ranks);
    unbiased_ = static_cast<float>(elements / (elements - 1));
  }

  void run(const OpOperands& operands, const StepScalars&) override {
    using namespace ops::normalization;
    follow(read_pointer<float>(operands, kFollow.read(kMean)),
           read_pointer<float>(operands, kFollow.read(kRunningMean)), 1.0F,
           write_pointer<float>(operands, kFollow.write(kRunningMean)));
    follow(read_pointer<float>(operands, kFollow.read(kVariance)),
           read_pointer<float>(operands, kFollow.read(kRunningVariance)), unbiased_,
           write_pointer<float>(operands, kFollow.write(kRunningVariance)));
  }

 private:
  // `moved` may be equal to `running`.
  void follow(const float* batch, const float* running, float factor, float* moved) const {
    for (std::size_t c = 0; c < channels_; ++c) {
      moved[c] = running[c] + momentum_ * (factor * batch[c] - running[c]);
    }
  }

  float momentum_;
  std::size_t channels_;
  float unbiased_ = 1;
};

}  // namespace

LayerRecipe make_recipe(const Context& context, const BatchNormalizationSpec& spec, const LayerTypes& types,
                        Mode mode) {
  // The types are checked before oneDNN is called.
  LayerRecipe recipe = ops::standard_recipe(spec, types, mode, {.follow = own_algorithm()});
  const Problem problem(context, spec, types.inputs[0]);
  if (mode == Mode::kInference) {
    recipe.forward[0].algorithms = algorithms_of(problem.forward_inference());
  } else if (spec.ranks > 1) {
    set_synchronized_algorithms(recipe, types.inputs[0]);
    recipe.forward[ops::synchronized::kNormalise].algorithms = algorithms_of(problem.forward_inference());
  } else {
    recipe.forward[0].algorithms = algorithms_of(problem.forward_training());
    recipe.backward[0].algorithms = algorithms_of(problem.backward());
  }
  return recipe;
}

std::unique_ptr<CpuKernel> make_kernel(const Context& context, const BatchNormalizationSpec& spec,
                                       const KernelRequest& request) {
  namespace position = ops::synchronized;
  const TensorType& type = request.op.layer_inputs[0];
  const Problem problem(context, spec, type);
  const bool forward = request.op.direction == Direction::kForward;
  if (forward && request.op.position == (spec.ranks > 1 ? position::kFollow : 1)) {
    return std::make_unique<FollowKernel>(spec, type);
  }
  if (spec.ranks > 1 && !(forward && request.op.position == position::kNormalise)) {
    return make_synchronized_kernel(context, spec, request.op);
  }
  if (!forward) {
    return build_requested(context, problem.backward(), request);
  }
  // Inference writes no statistics.
  const bool training = request.op.writes.size() > 1;
  return build_requested(context, training ? problem.forward_training() : problem.forward_inference(),
                         request);
}

}  // namespace vdnn::cpu
