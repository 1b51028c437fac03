#pragma once
// What happens in one predicted step, and when: which work runs on which stream, and what lies where in
// memory from when to when. The prediction's trace joined with the schedule, instruction by instruction, for
// reports that draw it.
//
// Times are seconds since the step before was done. Steps overlap and repeat: what begins before 0 (the copy
// of the next batch, where it need not wait) lies beside the end of the step before, just as the next step's
// lies beside the end of this one; whatever is drawn over one step from 0 on is continued from its other end.
//
// Memory counts from the first work that uses it up to the end of the last: what the device sees. The list of
// instructions hands it out a little earlier and takes it back a little later; judged by that, most is in use
// at `peak`.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "src/report/value_decision.h"
#include "vdnn/planned_run.h"
#include "vdnn/schedule.h"
#include "vdnn/tape.h"

namespace vdnn {

// A launch or a copy.
struct PicturedWork {
  InstructionKind kind = InstructionKind::kLaunch;
  StreamRole stream = StreamRole::kCompute;
  OpId op = kNone;  // of a launch
  Phase phase = Phase::kForward;
  ValueId value = kNone;  // of a copy
  double begin = 0;
  double end = 0;
};

// What memory holds, by whom it serves.
enum class Content : std::uint8_t {
  kParameters,
  kOptimizerState,
  kInputs,
  kFeatureMaps,
  kSaved,  // by forward for backward, not feature maps
  kGradientMaps,
  kParameterGradients,
  kWorkspace,
  kResults  // metrics, and the norm of all gradients
};
inline constexpr std::size_t kContents = 9;
std::string to_string(Content content);

// A value, or an op's workspace, in one place.
struct Stay {
  ValueId value = kNone;  // kNone: workspace
  Content content = Content::kWorkspace;
  std::uint64_t address = 0;  // from where the pool begins
  std::uint64_t bytes = 0;
  double begin = 0;
  double needed_from = 0;   // before: it has been fetched ahead
  double needed_until = 0;  // from then on it only leaves
  double end = 0;
  std::vector<std::uint32_t> work;  // that uses it, in the order of the list; the first makes it
};

// What was decided for a value that forward makes or is given.
struct Decision {
  ValueId value = kNone;
  ValueDecision fate = ValueDecision::kDropped;
  // Indices into the work; several where it is made again more than once.
  std::vector<std::uint32_t> offloads;
  std::vector<std::uint32_t> prefetches;
  std::vector<std::uint32_t> recomputations;
  // Of the time that its copies take, the part in which the compute stream did not stand still on their
  // behalf (step_time.h). Absent without copies.
  std::optional<double> hidden_share;
};

// The compute stream stands still.
struct Stall {
  double begin = 0;
  double end = 0;
  std::string awaited;  // the stream
};

struct BytesAt {
  double seconds = 0;
  std::uint64_t bytes = 0;
};

struct Resident {
  std::string name;
  Content content = Content::kWorkspace;
  std::uint64_t bytes = 0;
};

// When most is handed out, by the order of the list.
struct FullestMoment {
  OpId op = kNone;     // that it is for
  double seconds = 0;  // when the compute stream gets there
  std::uint64_t bytes = 0;
  std::vector<Resident> residents;  // the largest first
};

struct StepPicture {
  double step_seconds = 0;
  std::vector<PicturedWork> work;  // in the order of the list
  std::vector<Stay> stays;
  std::vector<Stall> stalls;        // in their order
  std::vector<BytesAt> handed_out;  // of the device's memory, in the order of the list
  std::vector<Decision> decisions;
  FullestMoment peak;
};

// Throws InvalidArgument where the prediction was made without a trace (RunOptions::trace_prediction).
StepPicture picture_of(const PlannedRun& run);

}  // namespace vdnn
