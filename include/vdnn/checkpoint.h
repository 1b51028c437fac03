#pragma once
// Checkpoints: training that was interrupted goes on as if it had not been. One safetensors file
// (safetensors.h) holds everything that later steps depend on: all parameters and running statistics
// ("conv1.filter", dims as the numbers lie: K, R, S, C), the optimizer's state ("conv1.filter.momentum"),
// and, as metadata, step, seed, optimizer, clipping and the algorithm of every op. A run that is planned with
// plan_resumed_run() takes these algorithms whatever it would have chosen itself, so that, with the same
// number of threads, its weights are bit for bit those of the run that was never interrupted, under any
// policy and budget.
//
// Metadata are strings: `format` "vdnn-checkpoint", `version` "2", `model`, `batch`, `global_batch` (what an
// update is made of: batch x ranks x accumulation), `step`, `seed`, `device` (its kind), `threads`,
// `algorithms_source`, `optimizer` (a JSON object), `clip_norm` (a number, or null), `algorithms` (a JSON
// object: op to algorithm), `sha256` (over the data of all tensors in the order of describe_state(), in which
// they are written; a program that rewrites the file may order them otherwise) and `vdnn` (the version that
// wrote it). None may be missing, and there are no others. Files of version "1" are without `global_batch`.

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "vdnn/planned_run.h"
#include "vdnn/safetensors.h"
#include "vdnn/session.h"

namespace vdnn {

// What a checkpoint says of itself.
struct CheckpointInfo {
  std::string model;
  std::int64_t batch = 0;                     // of one device at once
  std::optional<std::uint64_t> global_batch;  // none: the file is of version 1
  std::uint64_t step = 0;                     // steps done
  std::uint64_t seed = 0;
  std::string device;  // its kind: "cpu"
  int threads = 0;     // another number may change bits
  std::string algorithms_source;
  OptimizerSpec optimizer;
  std::optional<float> clip_norm;
  PrecisionOptions precision;                     // fp32 in files of versions 1 and 2
  DataType reduce_precision = DataType::kF32;     // TrainingOptions::reduces_in()
  std::optional<LossScale> loss_scale;            // where losses are scaled
  std::map<std::string, std::string> algorithms;  // names by names of ops
  std::string sha256;                             // of the tensors' data
  std::string vdnn_version;
};

// A checkpoint that is open for reading; another one may meanwhile take its place in the file system. May be
// shared by threads.
class Checkpoint {
 public:
  // Reads the header, none of the data. Throws DataError, with the file, what was expected and what was
  // found, for a file that is no sound safetensors file (SafetensorsFile), or no checkpoint of this version.
  explicit Checkpoint(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return path_; }
  const CheckpointInfo& info() const { return info_; }

  // Throws InvalidArgument for a checkpoint of another network (both models, the first parameter that
  // differs and its two shapes), another optimizer or another clipping.
  void require_matches(const PlannedRun& run) const;

  // The state to go on from. Throws as require_matches() does, and DataError, with the tensor, for tensors
  // that are missing, not expected or not fp32, and for data that do not have the checksum.
  TrainingState state(const PlannedRun& run) const;

 private:
  void require_network(const PlannedRun& run, const TrainingState& expected) const;
  void require_tensors(const TrainingState& expected) const;

  std::filesystem::path path_;
  SafetensorsFile file_;
  CheckpointInfo info_;
};

// The run that goes on from the checkpoint: planned as plan_run() does, with the checkpoint's algorithms.
// A training whose ranks synchronise batch normalisation goes on from one whose ranks do not, and the other
// way around: parameters and running statistics are the same, and the algorithms of other ops. A checkpoint
// of another precision goes on, too, with the algorithms that the options choose: all of them compute
// something else. Throws what plan_run() throws; InvalidArgument as Checkpoint::require_matches() does, and
// with the names of op and algorithm where an op has none in the checkpoint, or one that does not exist on
// this device.
PlannedRun plan_resumed_run(const Checkpoint& checkpoint, const Network& network, const RunOptions& options);

struct SaveOptions {
  // Write parameters, running statistics and optimizer states also where some are not finite.
  bool allow_nonfinite = false;
};

// Writes the session's state and puts it in place of what `path` held, durably and as a whole: whatever
// fails, the previous checkpoint is still there. Throws Diverged, with the first tensor that has values that
// are not finite, before anything is written, unless the options allow them; DataError where the file cannot
// be written, InvalidArgument with steps in flight.
void save_checkpoint(const std::filesystem::path& path, Session& session, const SaveOptions& options = {});

// Restores the session's state. Throws as Checkpoint does; then the session is as it was.
void load_checkpoint(const std::filesystem::path& path, Session& session);

}  // namespace vdnn
