#pragma once
// The executor: a plain interpreter of schedules. It knows no policy and no kind of layer. It is given the
// device, the pools, the compiled ops and the schedule, and submits one step after the other. The host does
// not wait inside a step: the device orders the work. The results of a step (loss, correct answers) are read
// when the caller asks for them, which in a training loop is one step late.
//
// Placement depends only on the order of instructions and on frontiers. So every step uses the same
// addresses, and a run on `sim` needs the same memory, to the byte, as a run on the device that it simulates.
//
// With `graph`, one graph (Device::capture) is captured per set of input and result addresses and replayed
// when these occur again. The first step with an update and the first without one run uncaptured. So the
// pools have grown and kernels are loaded before the first capture. Steps also run uncaptured while tracing.
// With `graph`, consecutive steps do not overlap. Each step begins by copying the numbers that change from
// step to step to a small block of device memory, from which kernels read them.
//
// If gradients are accumulated, all micro-steps of a step but the last leave out the instructions of the
// update. All micro-steps allocate and release the same memory. If the tape has collectives, the executor
// submits them to the communicator, and the host waits for steps by Communicator::wait().
//
// An executor belongs to one thread. After an exception it accepts no further step. Its destructor waits for
// the work in flight and releases all memory.

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "vdnn/communicator.h"
#include "vdnn/device.h"
#include "vdnn/device_pool.h"
#include "vdnn/op_library.h"
#include "vdnn/parameter_store.h"
#include "vdnn/pinned_pool.h"
#include "vdnn/schedule.h"
#include "vdnn/tape.h"

namespace vdnn {

// A set of roles.
class StreamRoles {
 public:
  constexpr StreamRoles(std::initializer_list<StreamRole> roles) {
    for (const StreamRole role : roles) {
      bits_ |= bit(role);
    }
  }
  constexpr bool contains(StreamRole role) const { return (bits_ & bit(role)) != 0; }

 private:
  static constexpr std::uint32_t bit(StreamRole role) {
    return std::uint32_t{1} << static_cast<std::uint32_t>(role);
  }

  std::uint32_t bits_ = 0;
};

// The roles that the steps of a device need if it trains alone.
inline constexpr StreamRoles kStepRoles{StreamRole::kCompute, StreamRole::kOffload, StreamRole::kPrefetch,
                                        StreamRole::kLoad};
// The roles that the steps of devices need if they train together.
inline constexpr StreamRoles kSharedStepRoles{StreamRole::kCompute, StreamRole::kOffload,
                                              StreamRole::kPrefetch, StreamRole::kLoad, StreamRole::kReduce};
// The roles that steps of `tape` need: with kReduce if the tape has collectives.
StreamRoles stream_roles(const Tape& tape);

// One stream for each of some roles, created once for a device and shared by its executors.
class StreamSet {
 public:
  StreamSet(Device& device, StreamRoles roles);
  // `role` must be one of those that the set was created with.
  StreamId operator[](StreamRole role) const { return streams_[static_cast<std::size_t>(role)]; }
  // All streams of the set, in the order of StreamRole.
  std::span<const StreamId> all() const { return all_; }
  // Everything submitted to any stream of the set so far.
  Frontier everything(const Device& device) const;

 private:
  std::array<StreamId, kStreamRoles> streams_{};  // by role
  std::vector<StreamId> all_;
};

// The number of batches that a loader stages ahead. Predictions count their memory.
inline constexpr std::uint32_t kStagedBatches = 3;

// A step that has been submitted.
struct StepTicket {
  std::uint64_t executor = 0;  // the id of the executor whose step it is
  std::uint64_t step = 0;
  Frontier inputs_copied;  // the host may write the batch's memory again
  Frontier done;           // everything of this step
};

// The metrics of one loss in one step.
struct LossMetrics {
  float loss = 0;     // mean over the places that count
  float correct = 0;  // the number of those places with the right answer
  float counted = 0;  // the number of those places
};
struct StepMetrics {
  double loss = 0;                  // the weighted sum of all losses, which training minimises
  std::vector<LossMetrics> losses;  // in the order of the network
  // The norm of the unscaled gradients before clipping. Present for updates that clip gradients or scale
  // losses.
  std::optional<float> gradient_norm;
  // Present for updates that scale losses. `scale` is the scale of the gradients. `skipped`: the gradients
  // overflowed, and this update was skipped. `skipped_steps` counts the skipped updates so far, this one
  // included.
  struct Scaling {
    float scale = 0;
    bool skipped = false;
    std::uint64_t skipped_steps = 0;
  };
  std::optional<Scaling> loss_scaling;
};

// A value that a step has just computed, for the first time or again, or has loaded.
struct MadeValue {
  OpId op = kNone;  // kNone: a load
  ValueId value = kNone;
  std::span<const std::byte> bytes;  // on the host, in the device's layout; valid during the call
};
// A debugging aid: called with every value as soon as it is computed. The thread that submits the step calls
// it and waits for each value. An exception from it fails the step.
using ValueInspector = std::function<void(const MadeValue&, const StepScalars&)>;

// Device memory in use, by the pool's count, in the last step submitted.
struct StepMemory {
  double average_bytes = 0;      // mean over the step's instructions
  std::uint64_t peak_bytes = 0;  // maximum
};

// The parts that an executor works with. All of them must outlive it.
struct ExecutorParts {
  Device& device;
  DevicePool& pool;
  PinnedPool& pinned;
  const StreamSet& streams;  // with the roles of stream_roles(tape)
  ParameterStore& parameters;
  const Tape& tape;
  const Schedule& schedule;
  // Null: no op runs, for devices that run no work and for tests of placement.
  OpProgram* program = nullptr;
  // Joins the device with those of the other ranks. Required if the tape has collectives.
  Communicator* communicator = nullptr;
  // Whether steps become graphs. If why_not_graph() is not empty, as in predictions, their instructions are
  // submitted one by one, with the same memory and order.
  bool graph = false;
  // Called with every value. Not allowed with `graph`, nor on a device that does not touch memory. May be
  // empty.
  ValueInspector inspect = {};
  // Least page-locked memory for the results of a step, in bytes. With the same least size, executors that
  // follow each other reuse each other's blocks.
  std::uint64_t least_result_bytes = 0;
};

// The reason why steps of this tape and program (null: no op runs) cannot be graphs on the device. Empty if
// they can.
std::string why_not_graph(const Device& device, const Tape& tape, const OpProgram* program);

// Page-locked memory for the results of one step of the tape, in bytes.
std::uint64_t result_bytes(const Tape& tape);

class Executor {
 public:
  // Allocates the schedule's persistent buffers. The schedule must have passed the checker (checker.h), whose
  // checks are not repeated here. Throws OutOfMemory, and InvalidArgument if values cannot be inspected, a
  // communicator is missing, or the store lacks a parameter.
  explicit Executor(const ExecutorParts& parts);
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // Submits one step. `inputs` are page-locked memory in the order and of the sizes of Tape::inputs(); the
  // host must not write them until the step's StepTicket::inputs_copied is reached. At most two steps may be
  // submitted whose results have not been waited for. Throws InvalidArgument if there are more or sizes
  // differ, OutOfMemory with the numbers, and the device's exceptions.
  StepTicket submit(std::span<const AddressRange> inputs, const StepScalars& scalars);
  // Blocks until the step's results are on the host. Call it once per step, in order of submission, with this
  // executor's ticket; InvalidArgument otherwise. After an exception of the device the executor accepts no
  // further step.
  StepMetrics wait(const StepTicket& ticket);

  // The page-locked memory of a result of a step that has been waited for, in the device's layout. `index` is
  // a position in Tape::results(). The second step after `step` overwrites the memory.
  AddressRange result(std::uint64_t step, std::size_t index) const;

  // Whether an exception ended a step; no further step is then accepted.
  bool failed() const { return failed_; }

  const StepMemory& memory() const { return memory_; }
  // The current or last place of each buffer; empty before its first allocation. For pictures and tests.
  const std::vector<AddressRange>& placements() const { return placements_; }

 private:
  struct Launch;
  struct PreparedInstruction;
  struct BufferState;
  struct StepGraph;
  // Memory for the numbers of StepScalars that kernels read when steps are graphs.
  struct StepNumbers {
    std::optional<AddressRange> range;                 // on the device
    std::array<std::optional<AddressRange>, 2> slots;  // page-locked, for even and odd steps
    std::uint64_t version = 0;
  };

  void prepare_instructions();
  void number_awaited_instructions();
  void take_arena();
  std::uint64_t arena_in_use() const;  // by the pool's count
  AddressRange memory_for(const Buffer& buffer, StreamId stream);
  void bind_persistent_buffers();
  void take(BufferId buffer, StreamId stream);
  void give_back(BufferId buffer, const Frontier& last_use);
  void give_back_everything() noexcept;
  void require_inputs(std::span<const AddressRange> inputs) const;

  void submit_as_graph(std::span<const AddressRange> inputs, const StepScalars& scalars);
  void submit_instructions(std::span<const AddressRange> inputs, const StepScalars& scalars);
  // The graph of steps with these inputs and the current result slot; null if there are too many graphs.
  StepGraph* find_graph(std::span<const AddressRange> inputs, bool updates);
  void join_streams();
  void take_step_numbers();
  void write_step_numbers(const StepScalars& scalars) const;
  void copy_step_numbers();

  void execute(PreparedInstruction& prepared, std::span<const AddressRange> inputs,
               const StepScalars& scalars);
  void do_work(PreparedInstruction& prepared, std::span<const AddressRange> inputs,
               const StepScalars& scalars);
  Frontier awaited_frontier(const Instruction& instruction) const;
  void release(const Instruction& instruction);
  void launch(PreparedInstruction& prepared, const StepScalars& scalars);
  void inspect(const PreparedInstruction& prepared, const StepScalars& scalars);
  std::vector<std::byte> on_host(const PreparedInstruction& prepared, const BufferUse& use);
  void reduce(const PreparedInstruction& prepared);
  void load(const PreparedInstruction& prepared, std::span<const AddressRange> inputs);
  void move(const PreparedInstruction& prepared, BufferId from, BufferId to);
  void take_result_slots();
  void read_result(const PreparedInstruction& prepared);
  void read_gradient_norm(std::uint64_t step, StepMetrics& metrics) const;
  void synchronize(const Frontier& frontier);
  void copy(const PreparedInstruction& prepared, CopyDirection direction, const Access& destination,
            const Access& source);

  AddressRange operand_range(BufferId buffer, ValueId value) const;
  std::uint64_t version_of(BufferId buffer, ValueId value) const;
  std::uint64_t new_version(BufferId buffer, ValueId value);
  void note_memory();
  void mark_memory();

  ExecutorParts parts_;
  std::uint64_t id_;  // tells tickets of different executors apart
  std::vector<PreparedInstruction> instructions_;
  std::vector<BufferState> buffers_;
  std::vector<AddressRange> placements_;
  std::optional<AddressRange> arena_;  // if the schedule has offsets
  // Even and odd steps: the frontier after each awaited instruction.
  std::array<std::vector<Frontier>, 2> frontiers_;
  // Even and odd steps: page-locked memory for all results, one after the other.
  std::array<std::optional<AddressRange>, 2> result_slots_;
  std::vector<AddressRange> result_parts_;  // offsets into a slot
  StepNumbers numbers_;
  bool replays_ = false;           // steps are graphs
  std::array<bool, 2> has_run_{};  // a step without updates, a step with updates
  std::vector<StepGraph> graphs_;
  std::vector<Access> reads_;  // scratch of launch()
  std::vector<Access> writes_;
  std::vector<AddressRange> operands_;
  std::vector<Collective> bucket_;
  Frontier inputs_copied_;
  Frontier results_ready_;
  std::array<Frontier, 2> slots_ready_;  // even and odd steps: their results
  std::array<bool, 2> updates_{};        // even and odd steps: whether they update
  std::uint64_t step_ = 0;               // the next to be submitted
  std::uint64_t waited_steps_ = 0;       // the next whose results are to be waited for
  std::uint64_t live_bytes_ = 0;         // of the pool, by this executor's count
  double live_sum_ = 0;
  StepMemory memory_;
  bool failed_ = false;
};

}  // namespace vdnn
