#pragma once
// The course of one predicted step: when each piece of work runs on its stream, and when each value occupies
// its memory. It joins the prediction's trace with the schedule, instruction by instruction, for reports that
// draw it.
//
// Times are seconds since the end of the previous step. Steps overlap and repeat. Work that begins before 0
// (the copy of the next batch, if it need not wait) overlaps the end of the previous step. Likewise such work
// of the next step overlaps the end of this one. So a drawing of one step from 0 on wraps around at its ends.
//
// Memory counts as used from the beginning of the first work that uses it to the end of the last. The
// instructions allocate it a little earlier and free it a little later; `peak` is the fullest moment by the
// instructions.

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
  OpId op = kNone;  // if it is a launch
  Phase phase = Phase::kForward;
  ValueId value = kNone;  // if it is a copy
  double begin = 0;
  double end = 0;
};

// Contents of memory by purpose.
enum class Content : std::uint8_t {
  kParameters,
  kOptimizerState,
  kInputs,
  kFeatureMaps,
  kSaved,  // made by one op of a layer for a later one, other than feature maps
  kGradientMaps,
  kParameterGradients,
  kWorkspace,
  kResults  // metrics, and the gradient norm
};
inline constexpr std::size_t kContents = 9;
std::string to_string(Content content);

// The time that a value, or an op's workspace, spends at one address.
struct Stay {
  ValueId value = kNone;  // kNone: workspace
  Content content = Content::kWorkspace;
  std::uint64_t address = 0;  // relative to the beginning of the pool
  std::uint64_t bytes = 0;
  double begin = 0;
  double needed_from = 0;   // before that time it is being fetched ahead
  double needed_until = 0;  // after that time it waits for its copy to the host
  double end = 0;
  std::vector<std::uint32_t> work;  // the work that uses it, in the order of the instructions; the first
                                    // makes it
};

// The decision for a value that forward makes or reads as input.
struct Decision {
  ValueId value = kNone;
  ValueDecision fate = ValueDecision::kDropped;
  // Indices into the work; several if the value is recomputed more than once.
  std::vector<std::uint32_t> offloads;
  std::vector<std::uint32_t> prefetches;
  std::vector<std::uint32_t> recomputations;
  // The part of its copies' time in which the compute stream does not wait for them (step_time.h). Absent
  // without copies.
  std::optional<double> hidden_share;
};

// A stall: the compute stream waits.
struct Stall {
  double begin = 0;
  double end = 0;
  std::string awaited;  // the stream for which it waits
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

// The moment at which most memory is allocated, by the order of the instructions.
struct FullestMoment {
  OpId op = kNone;     // for which memory is allocated
  double seconds = 0;  // when the compute stream reaches it
  std::uint64_t bytes = 0;
  std::vector<Resident> residents;  // the largest first
};

struct StepPicture {
  double step_seconds = 0;
  std::vector<PicturedWork> work;  // in the order of the instructions
  std::vector<Stay> stays;
  std::vector<Stall> stalls;        // in order of time
  std::vector<BytesAt> handed_out;  // device memory allocated, in the order of the instructions
  std::vector<Decision> decisions;
  FullestMoment peak;
};

// Throws InvalidArgument if the prediction was made without a trace (RunOptions::trace_prediction).
StepPicture picture_of(const PlannedRun& run);

}  // namespace vdnn
