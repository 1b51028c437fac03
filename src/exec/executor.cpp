#include "vdnn/executor.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "allocator/pinned_block.h"
#include "vdnn/error.h"
#include "vdnn/size.h"

namespace vdnn {

StreamRoles stream_roles(const Tape& tape) {
  return tape.collective() ? kSharedStepRoles : kStepRoles;
}

StreamSet::StreamSet(Device& device, StreamRoles roles) {
  for (std::size_t index = 0; index < kStreamRoles; ++index) {
    const auto role = static_cast<StreamRole>(index);
    if (roles.contains(role)) {
      streams_[index] = device.create_stream(to_string(role));
      all_.push_back(streams_[index]);
    }
  }
}

Frontier StreamSet::everything(const Device& device) const {
  Frontier result;
  for (const StreamId stream : all()) {
    result.join(device.frontier(stream));
  }
  return result;
}

// The operands of a launch, in the form in which the program reads them. Work in flight shares this object:
// the next step creates a new one only if an address has changed.
struct Executor::Launch {
  std::vector<AddressRange> ranges;  // reads, then writes, then the workspace
  std::size_t reads = 0;
  std::uint64_t step_numbers = 0;

  OpOperands operands() const {
    const std::span<const AddressRange> all(ranges);
    return {.reads = all.first(reads),
            .writes = all.subspan(reads, all.size() - reads - 1),
            .workspace = all.back(),
            .step_numbers = step_numbers};
  }
};

// An instruction, with data that are the same in all steps.
struct Executor::PreparedInstruction {
  const Instruction& instruction;
  StreamId stream = 0;
  std::string name;                // its name in traces and findings
  bool of_update = false;          // micro-steps that only accumulate gradients skip it
  std::vector<BufferUse> uses;     // the buffers that it reads and writes
  std::uint32_t frontier = kNone;  // index into frontiers_; kNone if no instruction waits for it
  // The launch of the last step. Null before the first step, and if this instruction is no launch.
  std::shared_ptr<const Launch> launch;
};

struct Executor::BufferState {
  AddressRange range;
  bool alive = false;
  bool owned = false;                    // allocated by this executor, which must free it
  ParameterStore::Slot* slot = nullptr;  // the slot of a parameter or a state; null for other buffers
  ValueId value = kNone;                 // the value in the buffer
  std::uint64_t version = 0;
};

// The graph of a step that reads its inputs at `inputs` and writes its results to slot `parity`.
struct Executor::StepGraph {
  std::vector<AddressRange> inputs;
  std::uint64_t parity = 0;
  bool updates = true;
  std::unique_ptr<DeviceGraph> graph;  // null if the step has not been captured yet
};

std::string why_not_graph(const Device& device, const Tape& tape, const OpProgram* program) {
  if (tape.collective()) {
    return "collectives of the ranks are submitted anew in each step";
  }
  std::string reason = device.why_not_capture();
  return reason.empty() && program != nullptr ? program->why_not_replay() : reason;
}

namespace {

// There is one graph for each combination of a loader's staged batch, one of the two slots of results, and a
// step with or without update.
constexpr std::size_t kMostGraphs = std::size_t{4} * kStagedBatches;

// Whether the instruction changes parameters or reads a result that only an update computes.
bool is_of_update(const Tape& tape, const Instruction& instruction) {
  const OpId op = instruction.kind == InstructionKind::kReadResult ? tape.producer(instruction.value)
                  : is_launch(instruction.kind)                    ? instruction.op
                                                                   : kNone;
  return op != kNone && tape.op(op).phase == Phase::kUpdate;
}

// Size of the staging block for inspected values. It is small, since little of the budget may be left.
constexpr std::uint64_t kInspectedBytes = std::uint64_t{64} << 10U;

// Sufficient for values of any type.
constexpr std::uint64_t kResultAlignment = 64;

}  // namespace

std::uint64_t result_bytes(const Tape& tape) {
  std::uint64_t bytes = 0;
  for (const ValueId result : tape.results()) {
    bytes = checked_add(bytes, round_up(tape.value(result).bytes, kResultAlignment));
  }
  return bytes;
}

Executor::Executor(const ExecutorParts& parts)
    : parts_(parts),
      id_(parts.parameters.next_version()),
      buffers_(parts.schedule.buffers.size()),
      placements_(parts.schedule.buffers.size()) {
  if (parts_.tape.collective() && parts_.communicator == nullptr) {
    throw InvalidArgument("'" + parts_.tape.model() +
                          "' is trained by several ranks together: its executor needs a communicator");
  }
  if (parts_.inspect && (parts_.graph || !parts_.device.properties().touches_memory)) {
    throw InvalidArgument("values of '" + parts_.tape.model() +
                          "' cannot be inspected if its steps are graphs or the device computes nothing");
  }
  prepare_instructions();
  number_awaited_instructions();
  try {
    take_arena();
    bind_persistent_buffers();
    if (parts_.graph) {
      take_step_numbers();
    }
    take_result_slots();
  } catch (...) {
    give_back_everything();
    throw;
  }
}

Executor::~Executor() {
  give_back_everything();
}

void Executor::prepare_instructions() {
  instructions_.reserve(parts_.schedule.instructions.size());
  for (const Instruction& instruction : parts_.schedule.instructions) {
    instructions_.push_back({.instruction = instruction,
                             .stream = parts_.streams[instruction.stream],
                             .name = trace_name(parts_.tape, instruction),
                             .of_update = is_of_update(parts_.tape, instruction),
                             .uses = uses(parts_.tape, instruction),
                             .launch = nullptr});
  }
}

// Frontiers are large, so an instruction has one only if another instruction waits for it.
void Executor::number_awaited_instructions() {
  std::uint32_t awaited = 0;
  for (const Instruction& instruction : parts_.schedule.instructions) {
    for (const Wait& wait : instruction.waits) {
      if (std::uint32_t& frontier = instructions_[wait.instruction].frontier; frontier == kNone) {
        frontier = awaited++;
      }
    }
  }
  for (auto& frontiers : frontiers_) {
    frontiers.resize(awaited);
  }
}

void Executor::take_arena() {
  if (parts_.schedule.arena_bytes == 0) {
    return;
  }
  const std::uint64_t alignment = parts_.device.properties().alignment_bytes;
  for (const Buffer& buffer : parts_.schedule.buffers) {
    if (buffer.offset && *buffer.offset % alignment != 0) {
      throw InvalidArgument("the schedule of '" + parts_.tape.model() + "' places '" + buffer.name + "' at " +
                            std::to_string(*buffer.offset) + ", blocks of " +
                            parts_.device.properties().name + " start at multiples of " +
                            std::to_string(alignment));
    }
  }
  arena_ = parts_.pool.allocate(parts_.schedule.arena_bytes, parts_.streams[StreamRole::kCompute]);
  if (!arena_) {
    throw OutOfMemory("memory for a step of '" + parts_.tape.model() + "'",
                      parts_.pool.shortage(parts_.schedule.arena_bytes));
  }
}

std::uint64_t Executor::arena_in_use() const {
  return round_up(arena_->bytes, parts_.device.properties().alignment_bytes);
}

void Executor::bind_persistent_buffers() {
  const std::vector<ParameterStore::Slot*> slots = parts_.parameters.slots(parts_.tape);
  for (const PreparedInstruction& prepared : instructions_) {
    for (const BufferUse& use : prepared.uses) {
      if (use.value != kNone && parts_.tape.value(use.value).persistent()) {
        BufferState& state = buffers_[use.buffer];
        state.slot = slots[use.value];
        if (state.slot == nullptr) {
          throw InvalidArgument("the parameter store has no " + parts_.tape.value(use.value).name +
                                " that fits '" + parts_.tape.model() + "'");
        }
        state.range = state.slot->range;
        state.alive = true;
        placements_[use.buffer] = state.range;
      }
    }
  }
  for (BufferId id = 0; id < buffers_.size(); ++id) {
    if (parts_.schedule.buffers[id].persistent && !buffers_[id].alive) {
      take(id, parts_.streams[StreamRole::kCompute]);
    }
  }
  // Each of these streams may be the first to use a persistent buffer, so each is ordered after the earlier
  // users of the buffers' memory.
  for (const StreamRole role : {StreamRole::kOffload, StreamRole::kPrefetch, StreamRole::kLoad}) {
    parts_.device.wait(parts_.streams[role], parts_.device.frontier(parts_.streams[StreamRole::kCompute]));
  }
}

void Executor::take_result_slots() {
  std::uint64_t begin = 0;
  for (const ValueId result : parts_.tape.results()) {
    const std::uint64_t size = parts_.tape.value(result).bytes;
    result_parts_.push_back({.begin = begin, .bytes = size});
    begin += round_up(size, kResultAlignment);
  }
  const std::uint64_t bytes = std::max(result_bytes(parts_.tape), parts_.least_result_bytes);
  if (bytes == 0) {
    return;
  }
  for (auto& slot : result_slots_) {
    slot = parts_.pinned.allocate_for_host(bytes);
    if (!slot) {
      throw OutOfMemory("page-locked memory for results", parts_.pinned.shortage(bytes));
    }
  }
}

void Executor::take_step_numbers() {
  replays_ = why_not_graph(parts_.device, parts_.tape, parts_.program).empty();
  graphs_.reserve(kMostGraphs);
  numbers_.range = parts_.pool.allocate(kStepNumbersBytes, parts_.streams[StreamRole::kCompute]);
  if (!numbers_.range) {
    throw OutOfMemory("the numbers of a step", parts_.pool.shortage(kStepNumbersBytes));
  }
  for (auto& slot : numbers_.slots) {
    slot = parts_.pinned.allocate_for_host(kStepNumbersBytes);
    if (!slot) {
      throw OutOfMemory("page-locked memory for the numbers of a step",
                        parts_.pinned.shortage(kStepNumbersBytes));
    }
  }
}

AddressRange Executor::result(std::uint64_t step, std::size_t index) const {
  if (failed_ || index >= result_parts_.size() || step >= waited_steps_ ||
      step_ - step > result_slots_.size()) {
    throw InvalidArgument("result " + std::to_string(index) + " of step " + std::to_string(step) + " of '" +
                          parts_.tape.model() + "' is not available: a step has " +
                          std::to_string(result_parts_.size()) + " results, " +
                          std::to_string(waited_steps_) + " steps have been waited for, and " +
                          std::to_string(step_) + " submitted");
  }
  const AddressRange& part = result_parts_[index];
  return {.begin = result_slots_[step % 2]->begin + part.begin, .bytes = part.bytes};
}

AddressRange Executor::memory_for(const Buffer& buffer, StreamId stream) {
  if (buffer.offset) {
    return {.begin = arena_->begin + *buffer.offset, .bytes = buffer.bytes};
  }
  const bool on_device = buffer.space == Space::kDevice;
  const auto range =
      on_device ? parts_.pool.allocate(buffer.bytes, stream) : parts_.pinned.allocate(buffer.bytes, stream);
  if (!range) {
    throw OutOfMemory(buffer.name,
                      on_device ? parts_.pool.shortage(buffer.bytes) : parts_.pinned.shortage(buffer.bytes));
  }
  return *range;
}

void Executor::take(BufferId id, StreamId stream) {
  const Buffer& buffer = parts_.schedule.buffers[id];
  const bool on_device = buffer.space == Space::kDevice;
  const AddressRange range = memory_for(buffer, stream);
  buffers_[id] = {.range = range, .alive = true, .owned = true};
  placements_[id] = range;
  if (on_device) {
    live_bytes_ += round_up(buffer.bytes, parts_.device.properties().alignment_bytes);
  }
}

void Executor::give_back(BufferId id, const Frontier& last_use) {
  const Buffer& buffer = parts_.schedule.buffers[id];
  BufferState& state = buffers_[id];
  if (buffer.space == Space::kDevice) {
    if (!buffer.offset) {
      parts_.pool.free(state.range, last_use);
    }
    live_bytes_ -= round_up(buffer.bytes, parts_.device.properties().alignment_bytes);
  } else {
    parts_.pinned.free(state.range, last_use);
  }
  // Set last: if a pool fails to free the block, the executor's destructor tries again.
  state.alive = false;
  state.owned = false;
}

void Executor::give_back_everything() noexcept {
  Frontier everything;
  try {
    everything = parts_.streams.everything(parts_.device);
  } catch (...) {  // no host memory for the frontier: the pools keep the blocks until they are destroyed
    return;
  }
  const auto one = [](const auto& free) {
    try {
      free();
    } catch (...) {  // a destructor cannot report the failure, and must free the other blocks
    }
  };
  // Waits through the communicator first: its wait has a deadline, even if another rank never arrives.
  if (parts_.communicator != nullptr) {
    one([&] { parts_.communicator->wait(everything); });
  }
  one([&] { parts_.device.synchronize(everything); });
  for (BufferId id = 0; id < buffers_.size(); ++id) {
    if (buffers_[id].owned) {
      one([&] { give_back(id, {}); });
    }
  }
  for (const auto* const slots : {&numbers_.slots, &result_slots_}) {
    for (const auto& slot : *slots) {
      if (slot) {
        one([&] { parts_.pinned.free(*slot, {}); });
      }
    }
  }
  for (const auto& range : {numbers_.range, arena_}) {
    if (range) {
      one([&] { parts_.pool.free(*range, {}); });
    }
  }
}

void Executor::require_inputs(std::span<const AddressRange> inputs) const {
  const std::span<const ValueId> values = parts_.tape.inputs();
  if (inputs.size() != values.size()) {
    throw InvalidArgument("a step of '" + parts_.tape.model() + "' has " + std::to_string(values.size()) +
                          " inputs, not " + std::to_string(inputs.size()));
  }
  for (std::size_t input = 0; input < inputs.size(); ++input) {
    const Value& value = parts_.tape.value(values[input]);
    if (inputs[input].bytes != value.bytes) {
      throw InvalidArgument("'" + value.name + "' of '" + parts_.tape.model() + "' has " +
                            format_size(value.bytes) + ", not " + format_size(inputs[input].bytes));
    }
  }
}

StepTicket Executor::submit(std::span<const AddressRange> inputs, const StepScalars& scalars) {
  if (failed_) {
    throw DeviceError("this executor failed in an earlier step and runs no further steps");
  }
  require_inputs(inputs);
  if (step_ - waited_steps_ >= result_slots_.size()) {
    throw InvalidArgument("the results of two steps of '" + parts_.tape.model() +
                          "' have not been waited for: a third would overwrite them");
  }
  failed_ = true;  // the end of the step clears it
  live_bytes_ = parts_.pool.statistics().in_use_bytes - (arena_ ? arena_in_use() : 0);
  live_sum_ = 0;
  memory_ = {};
  inputs_copied_.clear();
  results_ready_.clear();
  if (parts_.graph) {
    submit_as_graph(inputs, scalars);
  } else {
    submit_instructions(inputs, scalars);
  }
  StepTicket ticket{.executor = id_,
                    .step = step_,
                    .inputs_copied = inputs_copied_,
                    .done = parts_.streams.everything(parts_.device)};
  slots_ready_[step_ % 2] = results_ready_;
  updates_[step_ % 2] = scalars.updates();
  ++step_;
  failed_ = false;
  return ticket;
}

void Executor::submit_instructions(std::span<const AddressRange> inputs, const StepScalars& scalars) {
  for (PreparedInstruction& prepared : instructions_) {
    execute(prepared, inputs, scalars);
    note_memory();
  }
  memory_.average_bytes = instructions_.empty() ? 0 : live_sum_ / static_cast<double>(instructions_.size());
}

// Joins the streams before and after every step, as a graph would, even if this step is no graph. So all
// steps start from the same frontiers: buffers have the same addresses in every step, and a simulated step
// has the same times.
void Executor::submit_as_graph(std::span<const AddressRange> inputs, const StepScalars& scalars) {
  write_step_numbers(scalars);
  const auto submit_all = [&] {
    copy_step_numbers();
    submit_instructions(inputs, scalars);
  };
  join_streams();
  // The first step of each kind is not captured, since its launches may still load kernels.
  bool& has_run = has_run_.at(scalars.updates() ? 1 : 0);
  StepGraph* const step = std::exchange(has_run, true) && replays_ && !parts_.device.tracing()
                              ? find_graph(inputs, scalars.updates())
                              : nullptr;
  if (step == nullptr) {
    submit_all();
  } else if (step->graph) {
    parts_.device.replay(*step->graph, submit_all);
  } else {
    step->graph = parts_.device.capture(parts_.streams.all(), submit_all);
  }
  join_streams();
}

Executor::StepGraph* Executor::find_graph(std::span<const AddressRange> inputs, bool updates) {
  const std::uint64_t parity = step_ % 2;
  const auto found = std::ranges::find_if(graphs_, [&](const StepGraph& graph) {
    return graph.parity == parity && graph.updates == updates && std::ranges::equal(graph.inputs, inputs);
  });
  if (found != graphs_.end()) {
    return &*found;
  }
  if (graphs_.size() == kMostGraphs) {
    return nullptr;
  }
  graphs_.push_back(
      {.inputs = {inputs.begin(), inputs.end()}, .parity = parity, .updates = updates, .graph = nullptr});
  return &graphs_.back();
}

void Executor::join_streams() {
  const Frontier everything = parts_.streams.everything(parts_.device);
  for (const StreamId stream : parts_.streams.all()) {
    parts_.device.wait(stream, everything);
  }
}

// The slot is free: the host has waited for the losses of the last step that used it, and that step copied
// the slot before it computed its losses.
void Executor::write_step_numbers(const StepScalars& scalars) const {
  if (replays_ && parts_.program != nullptr) {
    parts_.program->write_step_numbers(
        scalars, std::span<std::byte, kStepNumbersBytes>(
                     pointer_to<std::byte>(numbers_.slots[step_ % 2]->begin), kStepNumbersBytes));
  }
}

void Executor::copy_step_numbers() {
  const StreamId compute = parts_.streams[StreamRole::kCompute];
  numbers_.version = parts_.parameters.next_version();
  parts_.device.copy(compute, {.name = "step numbers",
                               .direction = CopyDirection::kHostToDevice,
                               .destination = {.range = *numbers_.range, .version = numbers_.version},
                               .source = {.range = *numbers_.slots[step_ % 2]}});
}

StepMetrics Executor::wait(const StepTicket& ticket) {
  if (ticket.executor != id_ || ticket.step != waited_steps_ || ticket.step >= step_) {
    throw InvalidArgument("a wait for step " + std::to_string(ticket.step) +
                          (ticket.executor == id_ ? "" : " of an executor that is gone") +
                          "; the next step of '" + parts_.tape.model() + "' to wait for is step " +
                          std::to_string(waited_steps_));
  }
  // Memory is allocated before the wait, so that the caller can wait again after std::bad_alloc.
  StepMetrics metrics;
  metrics.losses.reserve(parts_.tape.losses());
  try {
    synchronize(slots_ready_[ticket.step % 2]);
  } catch (...) {
    failed_ = true;
    throw;
  }
  ++waited_steps_;
  if (!parts_.device.properties().touches_memory) {
    return {};
  }
  const bool summed = parts_.communicator != nullptr && parts_.tape.collective();
  const float ranks = summed ? static_cast<float>(parts_.communicator->size()) : 1.0F;
  for (std::size_t loss = 0; loss < parts_.tape.losses(); ++loss) {
    const float* numbers = pointer_to<const float>(result(ticket.step, loss).begin);
    metrics.losses.push_back({.loss = numbers[0] / ranks, .correct = numbers[1], .counted = numbers[2]});
    metrics.loss +=
        static_cast<double>(parts_.tape.loss_weight(loss)) * static_cast<double>(metrics.losses.back().loss);
  }
  read_gradient_norm(ticket.step, metrics);
  return metrics;
}

void Executor::read_gradient_norm(std::uint64_t step, StepMetrics& metrics) const {
  const auto results = parts_.tape.results();
  const auto norm = std::ranges::find_if(
      results, [&](ValueId value) { return parts_.tape.value(value).kind == ValueKind::kGradientNorm; });
  if (norm == results.end() || !updates_[step % 2]) {
    return;
  }
  const AddressRange range = result(step, static_cast<std::size_t>(norm - results.begin()));
  metrics.gradient_norm = *pointer_to<const float>(range.begin);
  if (parts_.tape.loss_scale() != kNone) {
    const auto& scaled = *pointer_to<const LossScaledNorm>(range.begin);
    const bool skipped = scaled.skips != 0;
    metrics.loss_scaling = {
        .scale = scaled.loss_scale,
        .skipped = skipped,
        .skipped_steps = static_cast<std::uint64_t>(scaled.skipped_steps) + (skipped ? 1 : 0)};
  }
}

// Waits through the communicator if there is one: its wait has a deadline, even if another rank never
// arrives.
void Executor::synchronize(const Frontier& frontier) {
  parts_.communicator == nullptr ? parts_.device.synchronize(frontier) : parts_.communicator->wait(frontier);
}

void Executor::note_memory() {
  live_sum_ += static_cast<double>(live_bytes_);
  memory_.peak_bytes = std::max(memory_.peak_bytes, live_bytes_);
}

// Takes all samples on one stream, so that a trace has them in order.
void Executor::mark_memory() {
  if (parts_.device.tracing()) {
    const StreamId stream = parts_.streams[StreamRole::kCompute];
    parts_.device.sample_counter(stream, "device memory in use", live_bytes_);
    parts_.device.sample_counter(stream, "page-locked memory in use",
                                 parts_.pinned.statistics().in_use_bytes);
  }
}

Frontier Executor::awaited_frontier(const Instruction& instruction) const {
  Frontier result;
  for (const Wait& wait : instruction.waits) {
    if (wait.steps_ago <= step_) {
      result.join(frontiers_[(step_ - wait.steps_ago) % 2][instructions_[wait.instruction].frontier]);
    }
  }
  return result;
}

void Executor::execute(PreparedInstruction& prepared, std::span<const AddressRange> inputs,
                       const StepScalars& scalars) {
  const Instruction& instruction = prepared.instruction;
  if (instruction.kind == InstructionKind::kRelease) {
    release(instruction);
    return;
  }
  parts_.device.wait(prepared.stream, awaited_frontier(instruction));
  if (scalars.updates() || !prepared.of_update) {
    do_work(prepared, inputs, scalars);
    if (parts_.inspect) {
      inspect(prepared, scalars);
    }
  }
  if (prepared.frontier != kNone) {
    frontiers_[step_ % 2][prepared.frontier] = parts_.device.frontier(prepared.stream);
  }
}

void Executor::do_work(PreparedInstruction& prepared, std::span<const AddressRange> inputs,
                       const StepScalars& scalars) {
  const Instruction& instruction = prepared.instruction;
  switch (instruction.kind) {
    case InstructionKind::kAllocate:
      take(instruction.buffer, prepared.stream);
      mark_memory();
      break;
    case InstructionKind::kLoad:
      load(prepared, inputs);
      break;
    case InstructionKind::kLaunch:
    case InstructionKind::kRecompute:
      if (parts_.tape.op(instruction.op).collective()) {
        reduce(prepared);
      } else {
        launch(prepared, scalars);
      }
      break;
    case InstructionKind::kOffload:
      move(prepared, instruction.buffer, instruction.host_buffer);
      break;
    case InstructionKind::kPrefetch:
      move(prepared, instruction.host_buffer, instruction.buffer);
      break;
    case InstructionKind::kReadResult:
      read_result(prepared);
      break;
    case InstructionKind::kRelease:
      break;
  }
}

void Executor::release(const Instruction& instruction) {
  give_back(instruction.buffer, awaited_frontier(instruction));
  mark_memory();
}

AddressRange Executor::operand_range(BufferId buffer, ValueId value) const {
  return {.begin = buffers_[buffer].range.begin, .bytes = parts_.tape.value(value).bytes};
}

// The version of the contents that a reader of `value` expects: that of the last write to the buffer, in the
// order of instructions. If this write made another value and the buffer has no slot, returns a version that
// no write has. Devices compare versions to find an order that the waits permit and in which the reader would
// read other contents.
std::uint64_t Executor::version_of(BufferId buffer, ValueId value) const {
  const BufferState& state = buffers_[buffer];
  if (state.slot != nullptr) {
    return state.slot->version;
  }
  return state.value == value ? state.version : ~std::uint64_t{0};
}

std::uint64_t Executor::new_version(BufferId buffer, ValueId value) {
  BufferState& state = buffers_[buffer];
  state.value = value;
  state.version = parts_.parameters.next_version();
  if (state.slot != nullptr) {
    state.slot->version = state.version;
  }
  return state.version;
}

void Executor::launch(PreparedInstruction& prepared, const StepScalars& scalars) {
  const Op& op = parts_.tape.op(prepared.instruction.op);
  reads_.clear();
  writes_.clear();
  operands_.clear();
  for (const BufferUse& use : prepared.uses) {
    if (use.value == kNone) {
      writes_.push_back({.range = buffers_[use.buffer].range});
      operands_.push_back(buffers_[use.buffer].range);
      continue;
    }
    const AddressRange range = operand_range(use.buffer, use.value);
    operands_.push_back(range);
    if (use.write) {
      writes_.push_back({.range = range, .version = new_version(use.buffer, use.value)});
    } else {
      reads_.push_back({.range = range, .version = version_of(use.buffer, use.value)});
    }
  }
  if (prepared.instruction.operands.back() == kNone) {
    operands_.emplace_back();
  }
  if (numbers_.range) {
    reads_.push_back({.range = *numbers_.range, .version = numbers_.version});
  }
  std::shared_ptr<const Launch>& kept = prepared.launch;
  if (!kept || kept->ranges != operands_) {
    kept = std::make_shared<const Launch>(Launch{
        .ranges = operands_, .reads = op.reads.size(), .step_numbers = replays_ ? numbers_.range->begin : 0});
  }
  Work work{.name = prepared.name,
            .reads = reads_,
            .writes = writes_,
            .cost = op.cost_with(parts_.schedule.algorithms[prepared.instruction.op]),
            .run = {}};
  if (parts_.program != nullptr) {
    work.run = [program = parts_.program, id = prepared.instruction.op, launch = kept, scalars](
                   void* native_stream) { program->run(id, launch->operands(), scalars, native_stream); };
  }
  parts_.device.submit(prepared.stream, work);
}

void Executor::inspect(const PreparedInstruction& prepared, const StepScalars& scalars) {
  if (!is_launch(prepared.instruction.kind) && prepared.instruction.kind != InstructionKind::kLoad) {
    return;
  }
  for (const BufferUse& use : prepared.uses) {
    if (use.write && use.value != kNone) {
      const std::vector<std::byte> bytes = on_host(prepared, use);
      parts_.inspect({.op = prepared.instruction.op, .value = use.value, .bytes = bytes}, scalars);
    }
  }
}

// Copies a value to the host after the instruction that uses it has been submitted, and waits for the copy.
std::vector<std::byte> Executor::on_host(const PreparedInstruction& prepared, const BufferUse& use) {
  const AddressRange range = operand_range(use.buffer, use.value);
  std::vector<std::byte> bytes(range.bytes);
  PinnedBlock staging(parts_.pinned, kInspectedBytes, "to inspect values");
  for (std::uint64_t at = 0; at < range.bytes; at += kInspectedBytes) {
    const std::uint64_t size = std::min(kInspectedBytes, range.bytes - at);
    copy(prepared, CopyDirection::kDeviceToHost, {.range = {.begin = staging.range().begin, .bytes = size}},
         {.range = {.begin = range.begin + at, .bytes = size}, .version = version_of(use.buffer, use.value)});
    staging.used_until(parts_.device.frontier(prepared.stream));
    synchronize(parts_.device.frontier(prepared.stream));
    std::memcpy(bytes.data() + at, pointer_to<const std::byte>(staging.range().begin), size);
  }
  return bytes;
}

// Reduces in place: the plan checker has verified that each result is in the buffer of its operand.
void Executor::reduce(const PreparedInstruction& prepared) {
  const std::span<const BufferUse> all(prepared.uses);
  const std::span<const BufferUse> reads = all.first(all.size() / 2);
  const std::span<const BufferUse> writes = all.subspan(reads.size());
  bucket_.clear();
  for (std::size_t operand = 0; operand < reads.size(); ++operand) {
    const std::uint64_t before = version_of(reads[operand].buffer, reads[operand].value);
    bucket_.push_back({.name = prepared.name,
                       .range = operand_range(writes[operand].buffer, writes[operand].value),
                       .type = parts_.tape.value(writes[operand].value).type.data_type,
                       .version_before = before,
                       .version_after = new_version(writes[operand].buffer, writes[operand].value),
                       .cost = parts_.tape.op(prepared.instruction.op).cost});
  }
  parts_.communicator->all_reduce(prepared.stream, bucket_);
}

void Executor::copy(const PreparedInstruction& prepared, CopyDirection direction, const Access& destination,
                    const Access& source) {
  parts_.device.copy(
      prepared.stream,
      {.name = prepared.name, .direction = direction, .destination = destination, .source = source});
}

void Executor::load(const PreparedInstruction& prepared, std::span<const AddressRange> inputs) {
  const auto all = parts_.tape.inputs();
  const auto position =
      static_cast<std::size_t>(std::ranges::find(all, prepared.instruction.value) - all.begin());
  const AddressRange range = operand_range(prepared.instruction.buffer, prepared.instruction.value);
  copy(prepared, CopyDirection::kHostToDevice,
       {.range = range, .version = new_version(prepared.instruction.buffer, prepared.instruction.value)},
       {.range = {.begin = inputs[position].begin, .bytes = range.bytes}});
  inputs_copied_.join(parts_.device.frontier(prepared.stream));
}

// Runs an offload or a prefetch. The contents, and so the version, do not change.
void Executor::move(const PreparedInstruction& prepared, BufferId from, BufferId to) {
  const ValueId value = prepared.instruction.value;
  const std::uint64_t version = version_of(from, value);
  buffers_[to].value = value;
  buffers_[to].version = version;
  const bool to_host = parts_.schedule.buffers[to].space == Space::kHost;
  copy(prepared, to_host ? CopyDirection::kDeviceToHost : CopyDirection::kHostToDevice,
       {.range = operand_range(to, value), .version = version},
       {.range = operand_range(from, value), .version = version});
}

void Executor::read_result(const PreparedInstruction& prepared) {
  const auto all = parts_.tape.results();
  const AddressRange part = result_parts_[static_cast<std::size_t>(
      std::ranges::find(all, prepared.instruction.value) - all.begin())];
  const AddressRange place{.begin = result_slots_[step_ % 2]->begin + part.begin, .bytes = part.bytes};
  copy(prepared, CopyDirection::kDeviceToHost, {.range = place},
       {.range = operand_range(prepared.instruction.buffer, prepared.instruction.value),
        .version = version_of(prepared.instruction.buffer, prepared.instruction.value)});
  results_ready_.join(parts_.device.frontier(prepared.stream));
}

}  // namespace vdnn
