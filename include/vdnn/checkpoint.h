#pragma once
// Checkpoints: an interrupted training run continues as if it had not been interrupted. One safetensors file
// (safetensors.h) holds everything that later steps depend on. Its tensors are all parameters and running
// statistics ("conv1.filter", dims in the order of storage: K, R, S, C) and the optimizer's state
// ("conv1.filter.momentum"). Its metadata contain step, seed, optimizer, clipping and the algorithm of every
// op. plan_resumed_run() plans with these algorithms. So with the same number of threads the weights equal
// those of an uninterrupted run bit for bit, under any policy and budget.
//
// Metadata are strings: `format` "vdnn-checkpoint", `version` "3", `model`, `batch`, `global_batch` (the
// samples of an update: batch x ranks x accumulation), `step`, `seed`, `device` (its kind), `threads`,
// `algorithms_source`, `optimizer` (a JSON object), `clip_norm` (a number, or null), `precision`,
// `fp32_layers`, `loss_scale`, `algorithms` (a JSON object: op to algorithm), `sha256` (over the data of all
// tensors in the order of describe_state(), in which save_checkpoint() writes them; other programs may
// reorder them) and `vdnn` (the version that wrote the file). None of these may be missing. The only optional
// entry is `reduce_precision`: if absent, ranks sum gradients in fp32. Files of version "2" lack precision
// and loss scale, and files of version "1" also lack `global_batch`.

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "vdnn/planned_run.h"
#include "vdnn/safetensors.h"
#include "vdnn/session.h"

namespace vdnn {

// The metadata of a checkpoint.
struct CheckpointInfo {
  std::string model;
  std::int64_t batch = 0;                     // of one step of one device
  std::optional<std::uint64_t> global_batch;  // absent in files of version 1
  std::uint64_t step = 0;                     // steps done
  std::uint64_t seed = 0;
  std::string device;  // its kind: "cpu"
  int threads = 0;     // another number may change the bits of results
  std::string algorithms_source;
  OptimizerSpec optimizer;
  std::optional<float> clip_norm;
  PrecisionOptions precision;                     // fp32 in files of versions 1 and 2
  DataType reduce_precision = DataType::kF32;     // TrainingOptions::reduces_in()
  std::optional<LossScale> loss_scale;            // present if losses are scaled
  std::map<std::string, std::string> algorithms;  // algorithm names by op name
  std::string sha256;                             // of the tensors' data
  std::string vdnn_version;
};

// A checkpoint that is open for reading. Another file may replace it meanwhile. May be shared by threads.
class Checkpoint {
 public:
  // Reads the header but no data. Throws DataError for a damaged safetensors file (SafetensorsFile) and for
  // files that are not checkpoints of a known version. The error names the file, what was expected and what
  // was found.
  explicit Checkpoint(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return path_; }
  const CheckpointInfo& info() const { return info_; }

  // Throws InvalidArgument for a checkpoint of another network, optimizer or clipping. For another network
  // the message has both models, the first parameter that differs and its two shapes.
  void require_matches(const PlannedRun& run) const;

  // The state to resume from. Throws as require_matches() does. Also throws DataError, which names the
  // tensor, for tensors that are missing, unexpected or not fp32, and for data with another checksum.
  TrainingState state(const PlannedRun& run) const;

 private:
  void require_network(const PlannedRun& run, const TrainingState& expected) const;
  void require_tensors(const TrainingState& expected) const;

  std::filesystem::path path_;
  SafetensorsFile file_;
  CheckpointInfo info_;
};

// Plans the run that resumes from the checkpoint, as plan_run() does, with the checkpoint's algorithms.
//
// A run may change whether ranks synchronise batch normalisation: parameters, running statistics and the
// algorithms of all other ops stay the same. A run may also change the precision; then the options choose all
// algorithms. Throws the exceptions of plan_run() and of Checkpoint::require_matches(). Throws
// InvalidArgument, with the names of op and algorithm, if the checkpoint lacks an op's algorithm or the
// device does not have it.
PlannedRun plan_resumed_run(const Checkpoint& checkpoint, const Network& network, const RunOptions& options);

struct SaveOptions {
  // Also write parameters, running statistics and optimizer states that are not finite.
  bool allow_nonfinite = false;
};

// Replaces `path` by a file with the session's state, durably and as a whole: after any failure the previous
// checkpoint is still there. Unless the options allow values that are not finite, it throws Diverged before
// it writes anything; the error names the first tensor with such a value. Throws DataError if the file cannot
// be written, InvalidArgument while steps are in flight.
void save_checkpoint(const std::filesystem::path& path, Session& session, const SaveOptions& options = {});

// Restores the session's state. Throws as Checkpoint does, and then leaves the session as it was.
void load_checkpoint(const std::filesystem::path& path, Session& session);

}  // namespace vdnn
