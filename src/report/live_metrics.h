#pragma once
// Figures of a training run while it runs, for programs and pages that watch it.
//
// The training thread publishes a snapshot after each step, and any thread reads the latest one. Publishing
// never waits. If a reader holds the lock at that moment, readers see the previous snapshot until the next
// step, which also adds the missed point to the history. Readers hold the lock only to copy, and make text
// afterwards. The history has a bounded size: whenever it is full, it drops every second point and doubles
// the number of steps between points.

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "vdnn/trainer.h"

namespace vdnn {

// One snapshot. Absent values have not been measured.
struct TrainingMetrics {
  std::string model;
  std::string device;
  std::string policy;
  std::uint64_t ranks = 1;
  std::uint64_t budget_bytes = 0;
  // Counts since this process started.
  std::uint64_t completed_steps = 0;
  std::uint64_t images = 0;             // of all ranks
  std::optional<double> stall_seconds;  // over the steps that the device has timed
  // Steps since the start of the training, those before a checkpoint included.
  std::uint64_t step = 0;   // completed
  std::uint64_t steps = 0;  // planned
  std::uint64_t epochs = 0;
  std::optional<std::uint64_t> epoch;  // of the last completed step, from 1
  std::uint64_t skipped_steps = 0;     // steps whose gradients overflowed
  // Figures of the last step of this process.
  std::optional<double> loss;
  std::optional<double> images_per_second;  // of all ranks
  std::optional<double> stall_fraction;
  std::optional<double> loss_scale;
  std::optional<std::uint64_t> memory_bytes;  // of the device, committed
  std::optional<std::uint64_t> peak_bytes;
};

// Sets the progress: `step` of `steps` are completed.
void set_step(TrainingMetrics& metrics, std::uint64_t step, std::uint64_t steps,
              std::uint64_t steps_per_epoch);

// Adds the report of one more step.
void add_step(TrainingMetrics& metrics, const StepReport& report);

// The text format of Prometheus, version 0.0.4: names begin with vdnn_, units are in the names. Leaves out
// metrics that have not been measured; the text is empty without a snapshot.
std::string to_prometheus(const std::optional<TrainingMetrics>& metrics);

// One step in the history.
struct MetricsPoint {
  std::uint64_t step = 0;
  std::optional<double> loss;
  std::optional<double> images_per_second;
  std::optional<double> stall_fraction;
  std::optional<double> memory_bytes;
};

// The smallest and the largest value of a series; absent: it has no finite value.
struct MetricsRange {
  std::optional<double> least;
  std::optional<double> greatest;

  void add(std::optional<double> value);
};

// At most `capacity` points of a training run, evenly spaced and in the order of steps. Also the ranges of
// all points that were added.
class MetricsHistory {
 public:
  // `capacity`: at least 2, even.
  explicit MetricsHistory(std::size_t capacity = 512);

  void add(const MetricsPoint& point);
  const std::vector<MetricsPoint>& points() const { return points_; }

  struct Ranges {
    MetricsRange loss;
    MetricsRange images_per_second;
    MetricsRange stall_fraction;
    MetricsRange memory_bytes;
  };
  const Ranges& ranges() const { return ranges_; }

 private:
  std::size_t capacity_;
  std::uint64_t stride_ = 1;  // one in this many points is kept
  std::uint64_t added_ = 0;
  std::vector<MetricsPoint> points_;
  Ranges ranges_;
};

// Passes snapshots from the training thread, which calls start() and publish(), to any number of readers.
class LiveMetrics {
 public:
  // Publishes the metrics known before the first step. Waits for readers.
  void start(const TrainingMetrics& initial);
  // Publishes the metrics after a step. Never waits.
  void publish(const TrainingMetrics& metrics);

  // The latest snapshot; none before start().
  std::optional<TrainingMetrics> latest() const;
  // The latest snapshot, and a history that ends with it, for the page; an empty object before start().
  nlohmann::ordered_json to_json() const;

 private:
  std::vector<MetricsPoint> unpublished_;  // used by the training thread only
  mutable std::mutex mutex_;
  std::optional<TrainingMetrics> latest_;
  MetricsHistory history_;
};

}  // namespace vdnn
