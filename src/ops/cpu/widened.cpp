#include "src/ops/cpu/widened.h"

#include <algorithm>
#include <type_traits>
#include <utility>
#include <variant>

#include "src/ops/cpu/dnnl_support.h"
#include "src/ops/cpu/filter_layer.h"
#include "src/ops/cpu/formats.h"
#include "src/ops/cpu/loops.h"
#include "vdnn/error.h"
#include "vdnn/size.h"

namespace vdnn::cpu {

namespace {

// A cache line: oneDNN's alignment of operands.
constexpr std::uint64_t kAlignment = 64;

bool any_narrow(std::span<const TensorType> types) {
  return std::ranges::any_of(types, is_narrow, &TensorType::data_type);
}

bool works_on_narrow_elements(const OpSpec& spec) {
  return std::holds_alternative<ReluSpec>(spec) || std::holds_alternative<SigmoidSpec>(spec) ||
         std::holds_alternative<AddSpec>(spec) || std::holds_alternative<ConcatenationSpec>(spec) ||
         std::holds_alternative<DropoutSpec>(spec) || std::holds_alternative<ConversionSpec>(spec) ||
         std::holds_alternative<GroupNormalizationSpec>(spec);
}

bool all_bf16(std::span<const TensorType> types) {
  return std::ranges::all_of(types, [](const TensorType& type) { return type.data_type == DataType::kBf16; });
}

// True if an element belongs to at most one window.
bool windows_are_apart(const PoolingSpec& spec) {
  return std::ranges::equal(spec.kernel, spec.stride, std::ranges::less_equal{});
}

// True if batch normalisation is computed in bf16. Over several ranks, our own loops compute the statistics
// in fp32 instead. If the number of channels is not a multiple of 16, fp32 is used, too, since oneDNN 2.6 has
// no fast bf16 kernel.
bool is_normalised_in_bf16(const BatchNormalizationSpec& spec, const TensorType& type) {
  return spec.ranks == 1 && type.dims.size() > 1 && type.dims[1] % 16 == 0;
}

// True if oneDNN's bf16 kernels compute the layer. oneDNN's reference implementations are not used, since
// they are slower than its fp32 kernels.
bool is_computed_in_bf16(const Context& context, const OpSpec& spec, const LayerTypes& types) {
  if (!context.multiplies_bf16 || !all_bf16(types.inputs) || !all_bf16(types.outputs)) {
    return false;
  }
  return std::visit(
      [&](const auto& known) {
        using Spec = std::decay_t<decltype(known)>;
        if constexpr (requires { filter_layer(context, known, types); }) {
          return has_fast_passes(filter_layer(context, known, types));
        } else if constexpr (std::is_same_v<Spec, BatchNormalizationSpec>) {
          return is_normalised_in_bf16(known, types.inputs[0]);
        } else if constexpr (std::is_same_v<Spec, PoolingSpec>) {
          return windows_are_apart(known);  // oneDNN 2.6 sums gradients of overlapping windows in bf16
        } else {
          return false;
        }
      },
      spec);
}

// True if the layer multiplies a parameter by feature maps, so that it needs a copy of the parameter in the
// maps' type.
bool has_filter(const OpSpec& spec) {
  return std::holds_alternative<ConvolutionSpec>(spec) ||
         std::holds_alternative<TransposedConvolutionSpec>(spec) ||
         std::holds_alternative<FullyConnectedSpec>(spec);
}

// Bytes of a value's fp32 copy; 0 if the value is not narrow.
std::uint64_t copy_bytes(DataType type, std::uint64_t elements) {
  return is_narrow(type) ? round_up(checked_multiply(elements, sizeof(float)), kAlignment) : 0;
}

// Bytes of the copy of one operand of a layer's op.
std::uint64_t copy_bytes(const Operand& operand, const LayerRecipe& recipe,
                         std::span<const TensorType> inputs, std::span<const TensorType> outputs) {
  switch (operand.role) {
    case OperandRole::kInput:
    case OperandRole::kInputGradient:
      return copy_bytes(inputs[operand.index].data_type, inputs[operand.index].elements());
    case OperandRole::kOutput:
    case OperandRole::kOutputGradient:
      return copy_bytes(outputs[operand.index].data_type, outputs[operand.index].elements());
    case OperandRole::kParameter: {
      const ParameterRecipe& parameter = recipe.parameters[operand.index];
      return copy_bytes(parameter.copy.value_or(parameter.type.data_type), parameter.stored_elements());
    }
    default:
      return 0;
  }
}

std::uint64_t stored_elements(const Value& value) {
  return value.bytes / size_of(value.type.data_type);
}

// Bytes of the copies of all operands of an op of the tape.
std::uint64_t copies_of(const Tape& tape, const Op& op) {
  std::uint64_t bytes = 0;
  for (const std::vector<ValueId>* const operands : {&op.reads, &op.writes}) {
    for (const ValueId id : *operands) {
      const Value& value = tape.value(id);
      bytes = checked_add(bytes, copy_bytes(value.type.data_type, stored_elements(value)));
    }
  }
  return bytes;
}

class WidenedKernel final : public CpuKernel {
 public:
  // In the workspace, the fp32 kernel's part comes first, then the copies.
  WidenedKernel(const Context& context, std::unique_ptr<CpuKernel> kernel, const KernelRequest& request)
      : threads_(context.threads), kernel_(std::move(kernel)) {
    const std::uint64_t workspace = request.op.algorithms[request.algorithm].workspace_bytes;
    inner_bytes_ = workspace - copies_of(request.tape, request.op);
    std::uint64_t offset = inner_bytes_;
    const auto place = [&](const std::vector<ValueId>& operands, std::vector<Copy>& copies) {
      for (const ValueId id : operands) {
        const Value& value = request.tape.value(id);
        copies.push_back(
            {.type = value.type.data_type, .elements = stored_elements(value), .offset = offset});
        offset += copy_bytes(copies.back().type, copies.back().elements);
      }
    };
    place(request.op.reads, reads_);
    place(request.op.writes, writes_);
    read_ranges_.resize(reads_.size());
    write_ranges_.resize(writes_.size());
  }

  void run(const OpOperands& operands, const StepScalars& scalars) override {
    for (std::size_t i = 0; i < reads_.size(); ++i) {
      read_ranges_[i] = range_of(reads_[i], operands.reads[i], operands.workspace);
      convert(reads_[i], [&]<class Format>(Format) {
        widen<Format>(operands.reads[i], read_ranges_[i], reads_[i].elements);
      });
    }
    for (std::size_t i = 0; i < writes_.size(); ++i) {
      write_ranges_[i] = range_of(writes_[i], operands.writes[i], operands.workspace);
    }
    kernel_->run({.reads = read_ranges_,
                  .writes = write_ranges_,
                  .workspace = {.begin = operands.workspace.begin, .bytes = inner_bytes_},
                  .step_numbers = operands.step_numbers},
                 scalars);
    for (std::size_t i = 0; i < writes_.size(); ++i) {
      convert(writes_[i], [&]<class Format>(Format) {
        narrow<Format>(write_ranges_[i], operands.writes[i], writes_[i].elements);
      });
    }
  }

 private:
  // An operand, and the offset of its copy in the workspace if its type is narrow.
  struct Copy {
    DataType type = DataType::kF32;
    std::uint64_t elements = 0;
    std::uint64_t offset = 0;
  };

  static AddressRange range_of(const Copy& copy, const AddressRange& operand, const AddressRange& workspace) {
    return is_narrow(copy.type)
               ? AddressRange{.begin = workspace.begin + copy.offset, .bytes = copy.elements * sizeof(float)}
               : operand;
  }

  template <class Work>
  static void convert(const Copy& copy, const Work& work) {
    if (is_narrow(copy.type)) {
      with_format(copy.type, work);
    }
  }

  template <class Format>
  void widen(const AddressRange& from, const AddressRange& to, std::uint64_t elements) const {
    const auto* const bits = pointer_to<const typename Format::Bits>(from.begin);
    auto* const numbers = pointer_to<float>(to.begin);
    for_each_range(elements, threads_, [=](std::uint64_t begin, std::uint64_t end) {
#pragma omp simd
      for (std::uint64_t i = begin; i < end; ++i) {
        numbers[i] = Format::widen(bits[i]);
      }
    });
  }

  template <class Format>
  void narrow(const AddressRange& from, const AddressRange& to, std::uint64_t elements) const {
    const auto* const numbers = pointer_to<const float>(from.begin);
    auto* const bits = pointer_to<typename Format::Bits>(to.begin);
    for_each_range(elements, threads_, [=](std::uint64_t begin, std::uint64_t end) {
#pragma omp simd
      for (std::uint64_t i = begin; i < end; ++i) {
        bits[i] = Format::narrow(numbers[i]);
      }
    });
  }

  int threads_;
  std::unique_ptr<CpuKernel> kernel_;
  std::uint64_t inner_bytes_ = 0;
  std::vector<Copy> reads_;
  std::vector<Copy> writes_;
  // The fp32 kernel's arguments. They are members, so that a step allocates no memory.
  std::vector<AddressRange> read_ranges_;
  std::vector<AddressRange> write_ranges_;
};

}  // namespace

bool is_widened(const Context& context, const OpSpec& spec, std::span<const TensorType> inputs,
                std::span<const TensorType> outputs) {
  return (any_narrow(inputs) || any_narrow(outputs)) && !works_on_narrow_elements(spec) &&
         !is_computed_in_bf16(context, spec, {inputs, outputs});
}

std::vector<TensorType> in_fp32(std::span<const TensorType> types) {
  std::vector<TensorType> wide(types.begin(), types.end());
  for (TensorType& type : wide) {
    if (is_narrow(type.data_type)) {
      type.data_type = DataType::kF32;
    }
  }
  return wide;
}

LayerRecipe widened_recipe(LayerRecipe recipe, const OpSpec& spec, std::span<const TensorType> inputs,
                           std::span<const TensorType> outputs) {
  if (has_filter(spec)) {
    recipe.parameters.front().copy = inputs[0].data_type;
  }
  for (std::vector<OpRecipe>* const ops : {&recipe.forward, &recipe.backward}) {
    for (OpRecipe& op : *ops) {
      std::uint64_t copies = 0;
      for (const std::vector<Operand>* const operands : {&op.reads, &op.writes}) {
        for (const Operand& operand : *operands) {
          copies = checked_add(copies, copy_bytes(operand, recipe, inputs, outputs));
        }
      }
      // An element's copy has four bytes and the narrow element two, and both are accessed once.
      op.cost.bytes += 1.5 * static_cast<double>(copies);
      for (Algorithm& algorithm : op.algorithms) {
        algorithm.workspace_bytes = checked_add(round_up(algorithm.workspace_bytes, kAlignment), copies);
      }
    }
  }
  return recipe;
}

Op op_in_fp32(const Tape& tape, const Op& op) {
  Op wide = op;
  wide.layer_inputs = in_fp32(op.layer_inputs);
  wide.layer_outputs = in_fp32(op.layer_outputs);
  const std::uint64_t copies = copies_of(tape, op);
  for (Algorithm& algorithm : wide.algorithms) {
    if (algorithm.workspace_bytes < copies) {
      throw InvalidArgument("op '" + op.name + "': its workspace of " +
                            format_size(algorithm.workspace_bytes) + " is smaller than its fp32 copies, " +
                            format_size(copies) + ": make the tape again with this version of vdnn");
    }
    algorithm.workspace_bytes -= copies;
  }
  return wide;
}

std::unique_ptr<CpuKernel> widened_kernel(const Context& context, std::unique_ptr<CpuKernel> kernel,
                                          const KernelRequest& request) {
  return std::make_unique<WidenedKernel>(context, std::move(kernel), request);
}

}  // namespace vdnn::cpu
