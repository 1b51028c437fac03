// PyTorch's operators on the stand-in for CUDA. The stand-in's memory is host memory, so the CPU's operator
// can compute a CUDA operator over the same bytes. The operator runs in stream order, like a kernel, and
// declares its reads and writes (tests/fakes/cudart/declared_launch.h). So the fake's judge sees every access
// with the operator's name.
//
// One boxed function serves all operators. The results' shapes come from the operator on the meta device. If
// these depend on the data (nonzero, masked_select), the host waits for the stream, as PyTorch's own
// operators do. Like a kernel, queued work holds no reference to its tensors. If memory is freed too early,
// the work reads whatever other work has written there since.
//
// The library refuses three kinds of operators by name. These are operators that the CPU lacks, those of
// random numbers, which would depend on the order of streams, and those that make a tensor without an input
// tensor. PyTorch's own operators allocate, make views and copy without a kernel.

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/copy_native.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/library.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "tests/fakes/cudart/declared_launch.h"

namespace {

using at::Tensor;
using c10::IValue;
using c10::OperatorHandle;
using torch::jit::Stack;
using Ranges = std::vector<vdnn_stand_in_range>;

// --- kinds of operators ------------------------------------------------------------------------------------

// PyTorch's own operators for these; none of them launches a kernel.
const std::set<std::string_view>& operators_without_kernels() {
  static const std::set<std::string_view> names{"aten::empty.memory_format",
                                                "aten::empty_strided",
                                                "aten::_efficientzerotensor",
                                                "aten::resize_",
                                                "aten::set_",
                                                "aten::set_.source_Storage",
                                                "aten::set_.source_Storage_storage_offset",
                                                "aten::set_.source_Tensor",
                                                "aten::is_set_to",
                                                "aten::view",
                                                "aten::view.dtype",
                                                "aten::view_as_real",
                                                "aten::view_as_complex",
                                                "aten::as_strided",
                                                "aten::_reshape_alias",
                                                "aten::unfold",
                                                "aten::record_stream",
                                                "aten::is_pinned",
                                                "aten::_pin_memory",
                                                "aten::_local_scalar_dense"};
  return names;
}

// Operators composed of operators that differ between devices. Only the CPU's own composition yields the
// CPU's bits.
const std::set<std::string_view>& compositions_of_the_cpu() {
  static const std::set<std::string_view> names{"aten::convolution", "aten::convolution_backward"};
  return names;
}

std::string name_of(const OperatorHandle& op) {
  return c10::toString(op.operator_name());
}

bool is_written(const c10::Argument& argument) {
  const c10::AliasInfo* const alias = argument.alias_info();
  if (alias == nullptr) {
    return false;
  }
  return alias->isWrite() || std::ranges::any_of(alias->containedTypes(), &c10::AliasInfo::isWrite);
}

// The schema of native_batch_norm hides that it updates the running statistics.
bool is_written_unannounced(std::string_view op, const std::string& argument) {
  return op == "aten::native_batch_norm" && (argument == "running_mean" || argument == "running_var");
}

bool takes_tensors(const c10::FunctionSchema& schema) {
  return std::ranges::any_of(schema.arguments(), [](const c10::Argument& argument) {
    return argument.type()->str().find("Tensor") != std::string::npos;
  });
}

// --- values ------------------------------------------------------------------------------------------------

template <class Visit>
void each_tensor(const IValue& value, const Visit& visit) {
  if (value.isTensor()) {
    if (value.toTensor().defined()) {
      visit(value.toTensor());
    }
  } else if (value.isTensorList()) {
    for (const Tensor& tensor : value.toTensorVector()) {
      visit(tensor);
    }
  } else if (value.isOptionalTensorList()) {
    for (const std::optional<Tensor>& tensor : value.toOptionalTensorList()) {
      if (tensor && tensor->defined()) {
        visit(*tensor);
      }
    }
  }
}

std::vector<Tensor> tensors_of(const IValue& value) {
  std::vector<Tensor> tensors;
  each_tensor(value, [&](const Tensor& tensor) { tensors.push_back(tensor); });
  return tensors;
}

// Returns the value for another device: applies `change` to each tensor and replaces a named device by
// `device`.
template <class Change>
IValue moved(const IValue& value, c10::Device device, const Change& change) {
  if (value.isTensor()) {
    return value.toTensor().defined() ? change(value.toTensor()) : value;
  }
  if (value.isTensorList()) {
    c10::List<Tensor> made;
    for (const Tensor& tensor : value.toTensorVector()) {
      made.push_back(change(tensor));
    }
    return made;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<Tensor>> made;
    for (const std::optional<Tensor>& tensor : value.toOptionalTensorList()) {
      made.push_back(tensor && tensor->defined() ? std::optional<Tensor>(change(*tensor)) : tensor);
    }
    return made;
  }
  return value.isDevice() ? IValue(device) : value;
}

// The bytes of a GPU's tensor, without a reference to it. A tensor on the host is copied, like the arguments
// of a kernel.
Tensor seen_by_the_host(const Tensor& tensor) {
  if (!tensor.is_cuda()) {
    return tensor.detach().clone();
  }
  return at::from_blob(tensor.data_ptr(), tensor.sizes(), tensor.strides(),
                       tensor.options().device(at::kCPU).requires_grad(false));
}

Tensor without_bytes(const Tensor& tensor) {
  if (!tensor.is_cuda() && tensor.dim() == 0) {
    return tensor;  // shapes may depend on a scalar's value
  }
  return at::empty_strided(tensor.sizes(), tensor.strides(),
                           tensor.options().device(at::kMeta).requires_grad(false));
}

vdnn_stand_in_range range_of(const Tensor& tensor) {
  if (tensor.numel() == 0) {
    return {nullptr, 0};
  }
  std::int64_t last = 0;
  for (std::int64_t dimension = 0; dimension < tensor.dim(); ++dimension) {
    last += (tensor.size(dimension) - 1) * tensor.stride(dimension);
  }
  return {tensor.data_ptr(), static_cast<std::size_t>(last + 1) * tensor.itemsize()};
}

void add_ranges(Ranges& ranges, const IValue& value) {
  each_tensor(value, [&](const Tensor& tensor) {
    if (tensor.is_cuda()) {
      ranges.push_back(range_of(tensor));
    }
  });
}

// --- kernels -----------------------------------------------------------------------------------------------

// Disables autograd, autocast and Python's modes, which may be active on the computing thread, for the call
// of the kernel's operator.
class PlainDispatch {
 private:
  c10::impl::ForceDispatchKeyGuard keys_{
      c10::DispatchKeySet(c10::DispatchKey::BackendSelect),
      c10::autograd_dispatch_keyset_with_ADInplaceOrView | c10::default_excluded_set};
  at::AutoGradMode no_grad_{false};
};

Stack called(const OperatorHandle& op, Stack arguments) {
  const PlainDispatch plain;
  op.callBoxed(arguments);
  return arguments;
}

struct Kernel {
  std::string name;
  OperatorHandle op;
  Stack arguments;                  // on the host
  Stack results;                    // their destinations; none if the operator writes them itself
  std::shared_ptr<Stack> for_host;  // if not null: results go there instead
};

void store(const Stack& made, const Stack& results) {
  const PlainDispatch plain;
  for (std::size_t i = 0; i < results.size(); ++i) {
    const std::vector<Tensor> to = tensors_of(results[i]);
    if (to.empty()) {
      continue;
    }
    const std::vector<Tensor> from = tensors_of(made.at(i));
    for (std::size_t k = 0; k < to.size(); ++k) {
      to[k].copy_(from.at(k));
    }
  }
}

// Work in a stream cannot throw to any caller, so a failure aborts. A failing kernel of a GPU ends the
// process's work, too.
void compute(void* data) {
  const std::unique_ptr<Kernel> kernel(static_cast<Kernel*>(data));
  try {
    Stack made = called(kernel->op, std::move(kernel->arguments));
    if (kernel->for_host != nullptr) {
      *kernel->for_host = std::move(made);
    } else {
      store(made, kernel->results);
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "fake GPU: %s failed in its stream: %s\n", kernel->name.c_str(), error.what());
    std::abort();
  }
}

void launch(std::unique_ptr<Kernel> kernel, const Ranges& reads, const Ranges& writes) {
  const cudaError_t error =
      cudaStandInLaunch(c10::cuda::getCurrentCUDAStream(), kernel->name.c_str(), compute, kernel.get(),
                        reads.data(), reads.size(), writes.data(), writes.size());
  TORCH_CHECK(error == cudaSuccess, "the launch of ", kernel->name, " failed: ", cudaGetErrorString(error));
  kernel.release();  // compute() owns it now
}

// --- one call of an operator -------------------------------------------------------------------------------

class Call {
 public:
  Call(const OperatorHandle& op, Stack arguments)
      : op_(op), name_(name_of(op)), arguments_(std::move(arguments)), device_(find_device()) {}

  // Launches the kernel and returns the results for PyTorch.
  Stack run() {
    const c10::cuda::CUDAGuard guard(device_);
    for (std::size_t i = 0; i < arguments_.size(); ++i) {
      add_ranges(is_written(i) ? writes_ : reads_, arguments_[i]);
    }
    const std::optional<Stack> shapes = is_in_place() ? Stack() : find_shapes();
    return shapes ? launched(*shapes) : awaited();
  }

 private:
  const c10::FunctionSchema& schema() const { return op_.schema(); }
  const c10::Argument& argument(std::size_t i) const { return schema().arguments()[i]; }
  bool is_written(std::size_t i) const {
    return ::is_written(argument(i)) || is_written_unannounced(name_, argument(i).name());
  }
  bool is_in_place() const { return ::is_written(argument(0)); }

  c10::Device find_device() const {
    for (const IValue& value : arguments_) {
      for (const Tensor& tensor : tensors_of(value)) {
        if (tensor.is_cuda()) {
          return tensor.device();
        }
      }
    }
    TORCH_CHECK(false, "fake GPU: ", name_, " was given no tensor of a GPU");
  }

  // The argument that the operator returns as this result, or null.
  const IValue* returned_argument(std::size_t result) const {
    const c10::AliasInfo* const alias = schema().returns()[result].alias_info();
    for (std::size_t i = 0; alias != nullptr && i < arguments_.size(); ++i) {
      const c10::AliasInfo* const of_argument = argument(i).alias_info();
      if (of_argument != nullptr && of_argument->beforeSets() == alias->beforeSets()) {
        return &arguments_[i];
      }
    }
    return nullptr;
  }

  Stack on_host() const {
    Stack values;
    for (const IValue& value : arguments_) {
      values.push_back(moved(value, at::kCPU, seen_by_the_host));
    }
    return values;
  }

  // The shapes of the results; none if they depend on the data. Resizes the tensors for results.
  std::optional<Stack> find_shapes() {
    Stack shadows;
    for (const IValue& value : arguments_) {
      shadows.push_back(moved(value, at::kMeta, without_bytes));
    }
    Stack shapes;
    try {
      shapes = called(op_, shadows);
    } catch (const std::exception&) {  // c10::Error, or an error of Python if Python computes the shapes
      return std::nullopt;
    }
    if (!std::ranges::all_of(shapes,
                             [](const IValue& value) { return value.isTensor() || value.isTensorList(); })) {
      return std::nullopt;
    }
    resize_outputs(shadows);
    return shapes;
  }

  void resize_outputs(const Stack& shadows) {
    for (std::size_t i = 0; i < arguments_.size(); ++i) {
      if (!argument(i).is_out()) {
        continue;
      }
      const std::vector<Tensor> outputs = tensors_of(arguments_[i]);
      const std::vector<Tensor> wanted = tensors_of(shadows[i]);
      for (std::size_t k = 0; k < outputs.size(); ++k) {
        if (outputs[k].sizes() != wanted[k].sizes()) {
          outputs[k].resize_(wanted[k].sizes());
          writes_.push_back(range_of(outputs[k]));
        }
      }
    }
  }

  Stack launched(const Stack& shapes) {
    Stack answers;
    Stack results;
    for (std::size_t r = 0; r < schema().returns().size(); ++r) {
      if (const IValue* const same = returned_argument(r)) {
        answers.push_back(*same);
        results.emplace_back();
        continue;
      }
      answers.push_back(moved(shapes.at(r), device_, [&](const Tensor& shape) {
        return at::empty_strided(shape.sizes(), shape.strides(), shape.options().device(device_));
      }));
      add_ranges(writes_, answers.back());
      results.push_back(moved(answers.back(), at::kCPU, seen_by_the_host));
    }
    launch(std::make_unique<Kernel>(Kernel{name_, op_, on_host(), std::move(results), nullptr}), reads_,
           writes_);
    return answers;
  }

  Stack awaited() {
    const auto made = std::make_shared<Stack>();
    launch(std::make_unique<Kernel>(Kernel{name_, op_, on_host(), {}, made}), reads_, writes_);
    c10::cuda::getCurrentCUDAStream().synchronize();
    Stack answers;
    for (std::size_t r = 0; r < made->size(); ++r) {
      const IValue* const same = returned_argument(r);
      answers.push_back(same != nullptr ? *same : moved(made->at(r), device_, [&](const Tensor& tensor) {
        return tensor.to(device_);
      }));
    }
    return answers;
  }

  const OperatorHandle& op_;
  const std::string name_;
  const Stack arguments_;
  const c10::Device device_;
  Ranges reads_;
  Ranges writes_;
};

// --- functions for the dispatcher --------------------------------------------------------------------------

void compute_on_host(const OperatorHandle& op, Stack* stack) {
  const auto count = static_cast<std::ptrdiff_t>(op.schema().arguments().size());
  Stack arguments(stack->end() - count, stack->end());
  stack->erase(stack->end() - count, stack->end());
  const Stack answers = Call(op, std::move(arguments)).run();
  stack->insert(stack->end(), answers.begin(), answers.end());
}

void refuse(const OperatorHandle& op, Stack*) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      false, "fake GPU: ", name_of(op),
      " cannot be computed (the CPU does not have it, it draws random numbers, or it makes a "
      "tensor of its own)");
}

// A copy within a GPU is a kernel unless it is a plain copy of bytes.
Tensor& copy(Tensor& self, const Tensor& source, bool non_blocking) {
  const bool in_one_gpu = self.is_cuda() && source.is_cuda() && self.device() == source.device();
  const bool same_bytes = self.dtype() == source.dtype() && self.sizes() == source.sizes() &&
                          self.is_contiguous() && source.is_contiguous();
  if (!in_one_gpu || same_bytes) {
    return at::native::copy_(self, source, non_blocking);
  }
  static const OperatorHandle op = c10::Dispatcher::singleton().findSchemaOrThrow("aten::copy_", "");
  Call(op, {self, source, non_blocking}).run();
  return self;
}

bool can_be_computed(const OperatorHandle& op) {
  return takes_tensors(op.schema()) && op.hasComputedKernelForDispatchKey(c10::DispatchKey::CPU) &&
         !op.hasTag(at::Tag::nondeterministic_seeded);
}

// Replaces CUDA's operators and returns their number.
int take_over() {
  // Never destroyed: like other libraries' registrations, it lasts as long as the process.
  static auto* const library =
      new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::CUDA, __FILE__, __LINE__);
  constexpr std::string_view kNamespace = "aten::";
  c10::Dispatcher& dispatcher = c10::Dispatcher::singleton();
  int computed = 0;
  for (const c10::OperatorName& operator_name : dispatcher.getAllOpNames()) {
    const std::string name = c10::toString(operator_name);
    const std::optional<OperatorHandle> op = dispatcher.findSchema(operator_name);
    if (!op || !name.starts_with(kNamespace) || name == "aten::copy_" ||
        operators_without_kernels().contains(name)) {
      continue;
    }
    if (!op->hasKernelForDispatchKey(c10::DispatchKey::CUDA) && !compositions_of_the_cpu().contains(name)) {
      continue;
    }
    const bool computes = can_be_computed(*op);
    library->impl(name.substr(kNamespace.size()).c_str(),
                  computes ? torch::CppFunction::makeFromBoxedFunction<&compute_on_host>()
                           : torch::CppFunction::makeFromBoxedFunction<&refuse>());
    computed += computes ? 1 : 0;
  }
  library->impl("copy_", torch::CppFunction::makeFromUnboxedFunction(&copy));
  return computed;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int vdnn_fake_gpu_take_over() {
  try {
    return take_over();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "fake GPU: %s\n", error.what());
    return 0;
  }
}
