#pragma once
// The executor: a plain interpreter of schedules. It knows no policy and no kind of layer; it is handed the
// device, the pools, the mathematics and the schedule, and submits one step after the other. The host does
// not wait inside a step: order is made on the device, and what a step returns (loss, correct answers) is
// read when the caller asks for it, one step late in a training loop.
//
// Placement depends on the order of instructions and on frontiers alone, so every step returns the same
// addresses, and a run on `sim` takes the same memory, to the byte, as a run on the device that it stands
// for.
//
// With `graph` a step is captured as a graph (Device::capture) when its batch and its results lie where they
// have not lain before, and replayed whenever they lie there again; the first with an update and the first
// without run as they are, so that the pools have what it takes and kernels are loaded, and so do steps while
// tracing. Steps do not overlap then. What changes from step to step kernels read from a small block of
// device memory, which is copied at the beginning of each.
//
// Where gradients are accumulated, all micro-steps of a step but the last leave out what belongs to the
// update; memory is taken and given back alike. What ranks do together goes through the communicator, which
// the host then waits through, too.
//
// An executor belongs to one thread. After an exception it takes no further step; its destructor waits for
// what is in flight and gives everything back.

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
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

// One stream for each role, made once for a device and shared by its executors.
class StreamSet {
 public:
  // `reduces`: also for what ranks do together.
  explicit StreamSet(Device& device, bool reduces = false);
  StreamId operator[](StreamRole role) const { return streams_[static_cast<std::size_t>(role)]; }
  std::span<const StreamId> all() const { return std::span(streams_).first(count_); }
  // Everything submitted to any of them so far.
  Frontier everything(const Device& device) const;

 private:
  std::array<StreamId, kStreamRoles> streams_{};
  std::size_t count_ = 0;  // that there are; kReduce is the last role
};

// Batches that a loader stages ahead, and that predictions count.
inline constexpr std::uint32_t kStagedBatches = 3;

// A step that has been submitted.
struct StepTicket {
  std::uint64_t executor = 0;  // whose step
  std::uint64_t step = 0;
  Frontier inputs_copied;  // the host may write the batch's memory again
  Frontier done;           // everything of this step
};

// What one loss said of a step.
struct LossMetrics {
  float loss = 0;     // mean over the places that count
  float correct = 0;  // how many of them were right
  float counted = 0;  // how many there are
};
struct StepMetrics {
  double loss = 0;                  // the weighted sum of all losses: what is minimised
  std::vector<LossMetrics> losses;  // in the order of the network
  // Of an update whose gradients are clipped: their norm before that. Also where losses are scaled, of the
  // unscaled gradients.
  std::optional<float> gradient_norm;
  // Of an update where losses are scaled: the scale that the gradients had, whether they overflowed, so that
  // nothing was updated, and how many updates were skipped so far, this one included.
  struct Scaling {
    float scale = 0;
    bool skipped = false;
    std::uint64_t skipped_steps = 0;
  };
  std::optional<Scaling> loss_scaling;
};

// A value that an op of a step has made, by its first launch or a recomputation, or that was loaded.
struct MadeValue {
  OpId op = kNone;  // kNone: a load
  ValueId value = kNone;
  std::span<const std::byte> bytes;  // on the host, as the device holds them; there during the call
};
// Is shown every value as it is made, on the thread that submits the step, which waits for each: a debugging
// aid. What it throws fails the step.
using ValueInspector = std::function<void(const MadeValue&, const StepScalars&)>;

// Of the last step submitted.
struct StepMemory {
  double average_bytes = 0;      // handed out by the pool: the mean over the step's instructions
  std::uint64_t peak_bytes = 0;  // handed out by the pool: the most
};

// What an executor is handed; everything must outlive it. Without a `program` no op is run: for
// devices that run no work, and to look at placement alone.
struct ExecutorParts {
  Device* device = nullptr;
  DevicePool* pool = nullptr;
  PinnedPool* pinned = nullptr;
  const StreamSet* streams = nullptr;
  ParameterStore* parameters = nullptr;
  const Tape* tape = nullptr;
  const Schedule* schedule = nullptr;
  OpProgram* program = nullptr;
  Communicator* communicator = nullptr;  // of the other ranks; a tape with collectives wants one
  // Steps are graphs where why_not_graph() is empty; elsewhere they run as they are, in the same memory and
  // order, as predictions do.
  bool graph = false;
  // Not with `graph`, nor on a device that does not touch memory. May be empty.
  ValueInspector inspect = {};
  // Take so much page-locked memory for the results of a step, where they do not need more: executors that
  // follow each other then find each other's.
  std::uint64_t least_result_bytes = 0;
};

// Empty, or why steps of this tape and program (null: nothing is run) cannot be graphs on the device.
std::string why_not_graph(const Device& device, const Tape& tape, const OpProgram* program);

// Page-locked memory that the results of one step of a tape take. Bytes.
std::uint64_t result_bytes(const Tape& tape);

class Executor {
 public:
  // Takes the schedule's persistent buffers. Throws OutOfMemory, and InvalidArgument where values cannot be
  // inspected. The schedule must have passed the checker
  // (checker.h): what it proves is not checked again.
  explicit Executor(const ExecutorParts& parts);
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // Submits one step. `inputs`: page-locked memory in the order of Tape::inputs(), as many bytes as those
  // values have, not to be written before inputs_copied. At most two steps may be submitted whose results
  // have not been waited for. Throws InvalidArgument where this is not so, OutOfMemory (numbers inside), and
  // what the device throws.
  StepTicket submit(std::span<const AddressRange> inputs, const StepScalars& scalars);
  // Blocks until the step's results are on the host. Once a step, in order of submission, with the ticket of
  // this executor; InvalidArgument otherwise. After it has thrown what the device threw, the executor takes
  // no further step.
  StepMetrics wait(const StepTicket& ticket);

  // Where a result (an index into Tape::results()) of a step that has been waited for lies, in page-locked
  // memory, as the device holds it; overwritten by the next step but one.
  AddressRange result(std::uint64_t step, std::size_t index) const;

  // Something was thrown in the middle of a step: no further one is taken.
  bool failed() const { return failed_; }

  const StepMemory& memory() const { return memory_; }
  // Where a buffer lies, or was placed last (its range is empty before): for pictures, and tests of
  // placement.
  const std::vector<AddressRange>& placements() const { return placements_; }

 private:
  struct Launch;
  struct BufferState;
  struct StepGraph;
  // What a step takes from StepScalars, where steps are graphs.
  struct StepNumbers {
    std::optional<AddressRange> range;                 // on the device
    std::array<std::optional<AddressRange>, 2> slots;  // page-locked, for even and odd steps
    std::uint64_t version = 0;
  };

  void number_awaited_instructions();
  void take_arena();
  std::uint64_t arena_in_use() const;  // as the pool counts it
  AddressRange memory_for(const Buffer& buffer, StreamId stream);
  void bind_persistent_buffers();
  void take(BufferId buffer, StreamId stream);
  void give_back(BufferId buffer, const Frontier& last_use);
  void give_back_everything() noexcept;
  void require_inputs(std::span<const AddressRange> inputs) const;

  void submit_as_graph(std::span<const AddressRange> inputs, const StepScalars& scalars);
  void submit_instructions(std::span<const AddressRange> inputs, const StepScalars& scalars);
  // The graph of steps whose batch and results lie there; null: none yet, and none to be made.
  StepGraph* find_graph(std::span<const AddressRange> inputs, bool updates);
  void join_streams();
  void take_step_numbers();
  void write_step_numbers(const StepScalars& scalars) const;
  void copy_step_numbers();

  void execute(std::uint32_t index, const Instruction& instruction, std::span<const AddressRange> inputs,
               const StepScalars& scalars);
  void do_work(std::uint32_t index, const Instruction& instruction, std::span<const AddressRange> inputs,
               const StepScalars& scalars);
  Frontier waited_for(const Instruction& instruction) const;
  void release(const Instruction& instruction);
  void launch(std::uint32_t index, const Instruction& instruction, const StepScalars& scalars);
  void inspect(std::uint32_t index, const Instruction& instruction, const StepScalars& scalars);
  std::vector<std::byte> on_host(std::uint32_t index, const BufferUse& use);
  void reduce(std::uint32_t index, const Instruction& instruction);
  void load(std::uint32_t index, const Instruction& instruction, std::span<const AddressRange> inputs);
  void move(std::uint32_t index, const Instruction& instruction, BufferId from, BufferId to);
  void take_result_slots();
  void read_result(std::uint32_t index, const Instruction& instruction);
  void read_gradient_norm(std::uint64_t step, StepMetrics& metrics) const;
  void synchronize(const Frontier& frontier);
  void copy(std::uint32_t index, CopyDirection direction, const Access& destination, const Access& source);

  AddressRange operand_range(BufferId buffer, ValueId value) const;
  std::uint64_t version_of(BufferId buffer, ValueId value) const;
  std::uint64_t new_version(BufferId buffer, ValueId value);
  void note_memory();
  void mark_memory();

  ExecutorParts parts_;
  std::uint64_t id_;                // tells tickets of different executors apart
  std::vector<std::string> names_;  // an instruction: what traces and findings call it
  std::vector<bool> of_update_;     // an instruction: left out where gradients are accumulated only
  std::vector<BufferState> buffers_;
  std::vector<AddressRange> placements_;
  std::optional<AddressRange> arena_;                    // where the schedule brings its addresses
  std::vector<std::vector<BufferUse>> uses_;             // an instruction: what it reads and writes
  std::vector<std::shared_ptr<const Launch>> launches_;  // an instruction: operands as they were last
  // An instruction: where its frontier is kept, kNone where nobody waits for it.
  std::vector<std::uint32_t> frontier_index_;
  std::array<std::vector<Frontier>, 2> frontiers_;  // even and odd steps: after instructions waited for
  // Even and odd steps: page-locked memory for all results, one behind the other.
  std::array<std::optional<AddressRange>, 2> result_slots_;
  std::vector<AddressRange> result_parts_;  // offsets into a slot
  StepNumbers numbers_;
  bool replays_ = false;           // steps are graphs
  std::array<bool, 2> has_run_{};  // a step that leaves updates out, one that makes them
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
