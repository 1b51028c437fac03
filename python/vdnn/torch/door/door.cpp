// The entry of the hooks into PyTorch. SavedVariable asks the engine of Engine::get_default_engine() for
// hooks, through a virtual function. Any library may replace that engine (set_default_engine_stub).
// DoorEngine forwards all calls to the previous engine, and supplies hooks only if that engine has none. So
// hooks of the program and of torch.utils.checkpoint have precedence, as inner hooks have over outer hooks in
// PyTorch.

#include "door.h"

#include <ATen/SavedTensorHooks.h>
#include <torch/csrc/autograd/engine.h>

#include <atomic>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

#include "cpu_memory.h"
#include "gpu_figures.h"
#include "notice_log.h"
#include "saved_tensor.h"

struct vdnn_door_hooks {
  vdnn::door::TensorStashes stashes;
};

namespace vdnn::door {
namespace {

namespace autograd = torch::autograd;

// The type of the engine's task arguments, which differs between versions of PyTorch.
template <class Function>
struct FirstArgument;
template <class Class, class Result, class First, class... Others>
struct FirstArgument<Result (Class::*)(First, Others...)> {
  using type = First;
};
using TaskArgument = FirstArgument<decltype(&autograd::Engine::thread_on_exception)>::type;

StashFunctions functions{};
std::atomic<vdnn_door_hooks*> active{nullptr};
thread_local std::string last_error;

// While PyTorch traces a program for torch.compile, hooks are off. They are on when the compiled program
// runs.
template <class State>
bool is_tracing(const State& state) {
  if constexpr (requires { state.is_tracing; }) {
    return state.is_tracing;
  } else {
    return false;
  }
}

// torch.func disables hooks.
bool may_hook() {
  const auto& state = at::SavedTensorDefaultHooks::get_tls_state();
  return !state.disabled_error_message.has_value() && !is_tracing(state);
}

class DoorEngine final : public autograd::Engine {
 public:
  explicit DoorEngine(autograd::Engine& inner) : inner_(inner) {}

  autograd::variable_list execute(const autograd::edge_list& roots, const autograd::variable_list& inputs,
                                  bool keep_graph, bool create_graph, bool accumulate_grad,
                                  const autograd::edge_list& outputs) override {
    return inner_.execute(roots, inputs, keep_graph, create_graph, accumulate_grad, outputs);
  }
  c10::intrusive_ptr<at::ivalue::Future> execute_with_graph_task(
      const std::shared_ptr<autograd::GraphTask>& task, NodePointer root,
      autograd::InputBuffer&& buffer) override {
    return inner_.execute_with_graph_task(task, std::move(root), std::move(buffer));
  }
  std::unique_ptr<autograd::AnomalyMetadata> make_anomaly_metadata() override {
    return inner_.make_anomaly_metadata();
  }
  std::unique_ptr<autograd::SavedVariableHooks> get_default_saved_variable_hooks() override {
    if (NoHooks::is_set()) {
      return nullptr;
    }
    if (auto hooks = inner_.get_default_saved_variable_hooks()) {
      return hooks;
    }
    vdnn_door_hooks* const hooks = active.load(std::memory_order_acquire);
    return hooks != nullptr && may_hook() ? std::make_unique<SavedTensor>(hooks->stashes) : nullptr;
  }
#ifdef VDNN_HAS_GET_NODE_CREATION_HOOKS
  std::vector<std::unique_ptr<autograd::NodeCreationHook>> get_node_creation_hooks() override {
    return inner_.get_node_creation_hooks();
  }
#endif
  void thread_on_exception(TaskArgument task, const NodePointer& node, std::exception& error) override {
    inner_.thread_on_exception(task, node, error);
  }
  void thread_init(int device, const std::shared_ptr<autograd::ReadyQueue>& queue,
                   bool should_increment) override {
    inner_.thread_init(device, queue, should_increment);
  }

 private:
  autograd::Engine& inner_;
};

// Never destroyed, since PyTorch's threads may outlive static objects.
autograd::Engine& door_engine() {
  static auto* const engine = new DoorEngine(autograd::Engine::get_default_engine());
  return *engine;
}

}  // namespace
}  // namespace vdnn::door

namespace door = vdnn::door;

const char* vdnn_door_last_error() {
  return door::last_error.c_str();
}

int vdnn_door_open(const char* path) {
  try {
    door::functions = door::StashFunctions::of_library(path);
    door::door_engine();  // stores the current engine before the next line replaces it
    torch::autograd::set_default_engine_stub(&door::door_engine);
    return 0;
  } catch (const std::exception& error) {
    door::last_error = error.what();
    return 1;
  }
}

void vdnn_door_log_with(void (*log)(const char* text)) {
  door::NoticeLog::set(log);
}

int vdnn_door_knows_gpus() {
  return door::knows_gpus() ? 1 : 0;
}

vdnn_door_hooks* vdnn_door_create(const vdnn_stash_options* options, uint64_t min_bytes,
                                  const vdnn_door_pool* pool) {
  return new vdnn_door_hooks{
      door::TensorStashes(door::functions, *options, min_bytes, pool == nullptr ? vdnn_door_pool{} : *pool)};
}

void vdnn_door_start(vdnn_door_hooks* hooks) {
  door::active.store(hooks, std::memory_order_release);
}

vdnn_stash* vdnn_door_stash(vdnn_door_hooks* hooks, int device) {
  auto* const stash = hooks->stashes.stash_of(static_cast<c10::DeviceIndex>(device));
  return stash == nullptr ? nullptr : stash->get();
}

void vdnn_door_count_cpu(int64_t already, int poison) {
  door::CpuMemory::count(already, poison != 0);
}
int64_t vdnn_door_cpu_bytes() {
  return door::CpuMemory::bytes();
}
int64_t vdnn_door_cpu_peak() {
  return door::CpuMemory::peak();
}
void vdnn_door_reset_cpu_peak() {
  door::CpuMemory::reset_peak();
}
int64_t vdnn_door_take_recent_cpu_peak() {
  return door::CpuMemory::take_recent_peak();
}
