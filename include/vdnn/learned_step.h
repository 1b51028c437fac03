#pragma once
// The learned step of a foreign program, such as one of PyTorch's, as a tape: "this program on that card in
// that budget", answered by the planner, the checker and the predictor that plan for our own networks.
//
// A program that trains through the stash shows when it saves a tensor for its backward pass, when it reads
// it again, and how many bytes all its tensors take at that time. Between two such events lies a stretch of
// the step, of which nothing else is known. Each stretch becomes an op that takes the time that was measured.
// It makes the tensor that is saved at its end and reads the one whose read stands at its beginning; until
// nothing but the graph holds a tensor, every stretch reads it. All other bytes in use are the op's
// workspace, but for those that are in use throughout the step (parameters, the optimizer's state), which are
// one value.
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
  std::uint32_t tensor = 0;  // tensors are counted in the order of their saves
  std::uint64_t bytes = 0;   // of a save: the tensor's, > 0
  // Of a save: the index of the first later event at which nothing but the graph holds the tensor; the number
  // of events: it is held up to the end of the step. Absent: the next event.
  std::optional<std::uint32_t> held_until;
  double seconds = 0;              // since the step began
  std::uint64_t in_use_bytes = 0;  // of all tensors of the program, as though none had left the device
  // The most bytes in use since the event before. Absent: the larger figure of the two events.
  std::optional<std::uint64_t> peak_bytes;

  friend bool operator==(const StepEvent&, const StepEvent&) = default;
};

struct LearnedStep {
  std::string program;                // for people: "train.py"
  std::string framework;              // "PyTorch 2.15.0"
  std::string device;                 // that the times are of: "cpu", or the GPU as its maker calls it
  std::optional<std::int64_t> batch;  // samples, where the program said so
  std::vector<StepEvent> events;
  double seconds = 0;            // > 0, of the whole step
  std::uint64_t peak_bytes = 0;  // the most bytes in use

  friend bool operator==(const LearnedStep&, const LearnedStep&) = default;
};

// The text of a file, after docs/learned_step.schema.json. Reading what was written gives the same step.
std::string to_text(const LearnedStep& step);
// Throws DataError, which names the event and the key, where a key is missing, unknown, or has a value that
// cannot be: times that go back, a read of a tensor that was not saved, fewer bytes in use than the saved
// tensors take that are read later.
LearnedStep parse_learned_step(std::string_view text);
// Of a file. Throws DataError with its name.
LearnedStep read_learned_step(const std::filesystem::path& path);

// The step's own batch, or 1 where it is not known: the step itself is the unit then.
std::int64_t batch_of(const LearnedStep& step);

// The step with `batch` samples (> 0). All that is not in use throughout the step, tensors and times, is
// taken to grow in proportion to the batch. Throws InvalidArgument for another batch than batch_of() where
// the step's own is not known.
//
// With the step's own batch, what lives at the fullest op of policy `none` is the recorded peak to the byte.
// One case is above it: a tensor is read for the last time and the next one saved in the same stretch, at the
// peak; both are counted there, since nothing says that the first one was gone.
std::shared_ptr<const Tape> to_tape(const LearnedStep& step, std::int64_t batch);

}  // namespace vdnn
