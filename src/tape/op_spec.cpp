#include "vdnn/op_spec.h"

namespace vdnn {

const char* kind_of(const OpSpec& spec) {
  struct Kind {
    const char* operator()(const ConvolutionSpec&) const { return "convolution"; }
    const char* operator()(const TransposedConvolutionSpec&) const { return "transposed_convolution"; }
    const char* operator()(const FullyConnectedSpec&) const { return "fully_connected"; }
    const char* operator()(const ReluSpec&) const { return "relu"; }
    const char* operator()(const SigmoidSpec&) const { return "sigmoid"; }
    const char* operator()(const PoolingSpec&) const { return "pooling"; }
    const char* operator()(const UpsamplingSpec&) const { return "upsampling"; }
    const char* operator()(const AddSpec&) const { return "add"; }
    const char* operator()(const ConcatenationSpec&) const { return "concatenation"; }
    const char* operator()(const BatchNormalizationSpec&) const { return "batch_normalization"; }
    const char* operator()(const GroupNormalizationSpec&) const { return "group_normalization"; }
    const char* operator()(const LrnSpec&) const { return "lrn"; }
    const char* operator()(const DropoutSpec&) const { return "dropout"; }
    const char* operator()(const ConversionSpec&) const { return "conversion"; }
    const char* operator()(const SoftmaxCrossEntropySpec&) const { return "softmax_cross_entropy"; }
    const char* operator()(const MeanSquaredErrorSpec&) const { return "mean_squared_error"; }
    const char* operator()(const DiceCrossEntropySpec&) const { return "dice_cross_entropy"; }
    const char* operator()(const CustomSpec&) const { return "custom"; }
    const char* operator()(const SgdSpec&) const { return "sgd"; }
    const char* operator()(const AdamSpec&) const { return "adam"; }
    const char* operator()(const GradientNormSpec&) const { return "gradient_norm"; }
    const char* operator()(const GradientSumSpec&) const { return "gradient_sum"; }
    const char* operator()(const GradientScalingSpec&) const { return "gradient_scaling"; }
    const char* operator()(const LossScaleUpdateSpec&) const { return "loss_scale_update"; }
    const char* operator()(const AllReduceSpec&) const { return "all_reduce"; }
  };
  return std::visit(Kind{}, spec);
}

}  // namespace vdnn
