#pragma once
// The learned step of a foreign program, for example one that uses PyTorch, as a tape. With the tape, the
// planner, the checker and the predictor of our own networks predict the program on another card and in
// another budget.
//
// A program that trains through the stash shows when it saves a tensor for its backward pass and when it
// reads it again. It also shows how many bytes all its tensors use at that time. Between two such events lies
// a stretch of the step, of which nothing else is known. Each stretch becomes an op with the measured time.
// The op makes the tensor that is saved at the end of its stretch, and reads the tensor whose read begins the
// stretch. As long as anything but autograd's graph holds a tensor, every stretch reads it. Bytes in use
// throughout the step (parameters, the optimizer's state) are one value; all other bytes in use are the op's
// workspace.
//
// Only the program can run such an op, so none may be run again: plans offload and never recompute.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "vdnn/tape.h"

namespace vdnn {

// A tensor is saved for the first time, or read.
struct StepEvent {
  enum class Kind : std::uint8_t { kSave, kRead };

  Kind kind = Kind::kSave;
  std::uint32_t tensor = 0;  // tensors are numbered in the order of their saves
  std::uint64_t bytes = 0;   // for a save: the tensor's size, > 0
  // For a save: the index of the first later event at which nothing but the graph holds the tensor. The
  // number of events means that it is held up to the end of the step. Absent: the next event.
  std::optional<std::uint32_t> held_until;
  double seconds = 0;              // since the step began
  std::uint64_t in_use_bytes = 0;  // of all tensors of the program, as though none had left the device
  // The most bytes in use since the previous event. Absent: the larger figure of the two events.
  std::optional<std::uint64_t> peak_bytes;

  friend bool operator==(const StepEvent&, const StepEvent&) = default;
};

struct LearnedStep {
  std::string program;                // for people: "train.py"
  std::string framework;              // "PyTorch 2.15.0"
  std::string device;                 // on which the times were measured: "cpu", or the GPU's product name
  std::optional<std::int64_t> batch;  // samples, if the program reported them
  std::vector<StepEvent> events;
  double seconds = 0;            // > 0, of the whole step
  std::uint64_t peak_bytes = 0;  // the most bytes in use

  friend bool operator==(const LearnedStep&, const LearnedStep&) = default;
};

// The text of a file that follows docs/learned_step.schema.json. Parsing it gives the same step.
std::string to_text(const LearnedStep& step);
// Throws DataError, which names the event and the key, if a key is missing, unknown or has an impossible
// value. Examples are times that decrease, a read of a tensor that was not saved, or fewer bytes in use than
// those of the saved tensors with further reads.
LearnedStep parse_learned_step(std::string_view text);
// Parses a file. Throws DataError that names it.
LearnedStep read_learned_step(const std::filesystem::path& path);

// The step's own batch, or 1 if it is not known: the unit is then the whole step.
std::int64_t batch_of(const LearnedStep& step);

// The step with `batch` samples (> 0). Tensors and times grow in proportion to the batch, except for bytes in
// use throughout the step. Throws InvalidArgument if `batch` differs from batch_of() and the step's own batch
// is not known.
//
// With the step's own batch, the bytes alive at the fullest op of policy `none` equal the recorded peak to
// the byte. They exceed it in one case: at the peak, one tensor is read for the last time and the next is
// saved in the same stretch. Both count there, since nothing shows that the first had been freed.
std::shared_ptr<const Tape> to_tape(const LearnedStep& step, std::int64_t batch);

}  // namespace vdnn
