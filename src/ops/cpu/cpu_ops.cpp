#include "vdnn/cpu_ops.h"

#include <omp.h>

#include <new>
#include <optional>
#include <type_traits>
#include <vector>

#include "src/ops/cpu/cpu_catalog.h"
#include "src/ops/cpu/filter_layer.h"
#include "src/ops/cpu/layer_ops.h"
#include "src/ops/cpu/recipes.h"
#include "src/ops/cpu/widened.h"
#include "vdnn/error.h"

namespace vdnn {

namespace cpu {

namespace {

// The two layouts of a parameter: `logical` in checkpoints, `storage` in kernels.
struct ParameterForms {
  dnnl::memory::desc logical;
  dnnl::memory::desc storage;
};

// The forms of the filter if the op's layer has one.
std::optional<ParameterForms> filter_forms(const Context& context, const Op& op) {
  return std::visit(
      [&](const auto& spec) -> std::optional<ParameterForms> {
        if constexpr (requires { filter_layer(context, spec, LayerTypes{}); }) {
          const bool widened = is_widened(context, op.spec, op.layer_inputs, op.layer_outputs);
          const std::vector<TensorType> inputs = widened ? in_fp32(op.layer_inputs) : op.layer_inputs;
          const std::vector<TensorType> outputs = widened ? in_fp32(op.layer_outputs) : op.layer_outputs;
          const FilterLayer layer = filter_layer(context, spec, LayerTypes{inputs, outputs});
          return ParameterForms{.logical = layer.logical, .storage = layer.storage};
        } else {
          return std::nullopt;
        }
      },
      op.spec);
}

// Filters are the second read of a layer's forward op; all other parameters are stored in logical order.
ParameterForms forms_of(const Context& context, const Tape& tape, const TapeParameter& parameter) {
  const ValueId read = parameter.copy != kNone ? parameter.copy : parameter.value;
  for (const OpId reader : tape.readers(read)) {
    const Op& op = tape.op(reader);
    if (op.phase == Phase::kForward && op.reads.size() > 1 && op.reads[1] == read) {
      if (const auto forms = filter_forms(context, op)) {
        return *forms;
      }
    }
  }
  const dnnl::memory::desc dense = dense_desc(parameter.recipe.type);
  return {.logical = dense, .storage = dense};
}

// Translates oneDNN's errors: a shortage of host memory is not a failure of the device.
[[noreturn]] void fail_running(const std::string& what, const dnnl::error& error) {
  if (error.status == dnnl_out_of_memory) {
    throw std::bad_alloc();
  }
  throw DeviceError("cpu: " + what + " failed: " + error.what());
}

class CpuProgram final : public OpProgram {
 public:
  CpuProgram(const Context& context, const Tape& tape, std::span<const std::uint32_t> algorithms)
      : context_(context), tape_(tape) {
    for (OpId id = 0; id < tape.ops().size(); ++id) {
      kernels_.push_back(compile(id, algorithms[id]));
    }
    for (const TapeParameter& parameter : tape.parameters()) {
      forms_.push_back(forms_of(context, tape, parameter));
    }
  }

  void run(OpId op, const OpOperands& operands, const StepScalars& scalars, void*) override {
    try {
      kernels_.at(op)->run(operands, scalars);
    } catch (const dnnl::error& error) {
      fail_running("op '" + tape_.op(op).name + "'", error);
    }
  }

  void pack_parameter(std::uint32_t parameter, std::span<const float> logical, void* storage) override {
    const ParameterForms& forms = forms_of_parameter(parameter, logical.size_bytes());
    // The cast is safe: a reorder only reads its source.
    reorder({forms.logical, const_cast<float*>(logical.data())}, {forms.storage, storage});
  }

  void unpack_parameter(std::uint32_t parameter, const void* storage, std::span<float> logical) override {
    const ParameterForms& forms = forms_of_parameter(parameter, logical.size_bytes());
    reorder({forms.storage, const_cast<void*>(storage)}, {forms.logical, logical.data()});
  }

 private:
  struct Side {
    dnnl::memory::desc desc;
    void* data = nullptr;
  };

  std::unique_ptr<CpuKernel> compile(OpId id, std::uint32_t algorithm) const {
    const Op& op = tape_.op(id);
    if (algorithm >= op.algorithms.size()) {
      throw InvalidArgument("op '" + op.name + "' has " + std::to_string(op.algorithms.size()) +
                            " algorithms, not one of index " + std::to_string(algorithm));
    }
    if (is_widened(context_, op.spec, op.layer_inputs, op.layer_outputs)) {
      return widened_kernel(context_, compile(op_in_fp32(tape_, op), algorithm),
                            {.tape = tape_, .op = op, .algorithm = algorithm});
    }
    return compile(op, algorithm);
  }

  std::unique_ptr<CpuKernel> compile(const Op& op, std::uint32_t algorithm) const {
    try {
      return std::visit(
          [&](const auto& spec) -> std::unique_ptr<CpuKernel> {
            const KernelRequest request{.tape = tape_, .op = op, .algorithm = algorithm};
            if constexpr (std::is_same_v<std::decay_t<decltype(spec)>, AllReduceSpec>) {
              return nullptr;  // the communicator runs it
            } else if constexpr (requires { make_kernel(context_, spec, request); }) {
              return make_kernel(context_, spec, request);
            } else {
              throw InvalidArgument("op '" + op.name + "': cpu has no kernel for it");
            }
          },
          op.spec);
    } catch (const dnnl::error& error) {
      if (error.status == dnnl_out_of_memory) {
        throw std::bad_alloc();
      }
      throw InvalidArgument("op '" + op.name + "' cannot be compiled: " + error.what());
    }
  }

  const ParameterForms& forms_of_parameter(std::uint32_t parameter, std::uint64_t logical_bytes) const {
    if (parameter >= forms_.size() || forms_[parameter].logical.get_size() != logical_bytes) {
      throw InvalidArgument("there is no parameter " + std::to_string(parameter) + " of " +
                            std::to_string(logical_bytes) + " bytes");
    }
    return forms_[parameter];
  }

  void reorder(const Side& from, const Side& to) const {
    try {
      const ThreadScope scope(context_.threads);
      dnnl::memory source(from.desc, context_.engine, from.data);
      dnnl::memory destination(to.desc, context_.engine, to.data);
      dnnl::stream stream(context_.engine);
      dnnl::reorder(source, destination).execute(stream, source, destination);
      stream.wait();
    } catch (const dnnl::error& error) {
      fail_running("the reorder of a parameter", error);
    }
  }

  Context context_;
  const Tape& tape_;
  std::vector<std::unique_ptr<CpuKernel>> kernels_;  // by op of the tape
  std::vector<ParameterForms> forms_;                // by parameter of the tape
};

class CpuOps final : public OpLibrary {
 public:
  explicit CpuOps(const Context& context) : context_(context), catalog_(context) {}

  const OpCatalog& catalog() const override { return catalog_; }

  std::unique_ptr<OpProgram> compile(const Tape& tape, std::span<const std::uint32_t> algorithms) override {
    if (algorithms.size() != tape.ops().size()) {
      throw InvalidArgument(std::to_string(algorithms.size()) + " algorithms for " +
                            std::to_string(tape.ops().size()) + " ops");
    }
    const ThreadScope scope(context_.threads);
    return std::make_unique<CpuProgram>(context_, tape, algorithms);
  }

 private:
  Context context_;
  CpuCatalog catalog_;
};

}  // namespace

}  // namespace cpu

std::unique_ptr<OpLibrary> make_cpu_ops(const CpuOpsOptions& options) {
  if (options.threads < 1) {
    throw InvalidArgument("cpu ops: " + std::to_string(options.threads) + " compute threads");
  }
  // oneDNN's barriers would wait forever for threads that OpenMP does not start.
  if (options.threads > omp_get_thread_limit()) {
    throw InvalidArgument("cpu ops: " + std::to_string(options.threads) +
                          " compute threads, but OpenMP allows " + std::to_string(omp_get_thread_limit()) +
                          " (OMP_THREAD_LIMIT)");
  }
  return std::make_unique<cpu::CpuOps>(cpu::Context{.engine = dnnl::engine(dnnl::engine::kind::cpu, 0),
                                                    .threads = options.threads,
                                                    .multiplies_bf16 = cpu::processor_multiplies_bf16()});
}

}  // namespace vdnn
