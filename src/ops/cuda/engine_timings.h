#pragma once
// Results of trials of engines (engine_trials.h), kept in a file between runs: times, and whether each engine
// computes correctly. A file contains results of many devices. The key of a result is the GPU, driver, cuDNN
// and cudnn-frontend, since it is valid only for these.

#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>

#include "src/ops/cuda/engine_trials.h"

namespace vdnn::cuda {

// The device and libraries of a trial.
struct TrialPlace {
  std::string gpu;             // the vendor's name
  std::string driver;          // the version of CUDA that the driver supports
  std::string cudnn;           // version
  std::string cudnn_frontend;  // version
  friend bool operator<(const TrialPlace& a, const TrialPlace& b) {
    return std::tie(a.gpu, a.driver, a.cudnn, a.cudnn_frontend) <
           std::tie(b.gpu, b.driver, b.cudnn, b.cudnn_frontend);
  }
};

class EngineTimings {
 public:
  EngineTimings() = default;
  // Reads the format of text(). Throws DataError for anything else.
  explicit EngineTimings(std::string_view text);

  // JSON (docs/engine_timings.schema.json), one line per question. The same content has the same text.
  std::string text() const;

  // Null if no trial is known.
  const EngineTrial* find(const TrialPlace& place, const std::string& question,
                          const std::string& engine) const;
  // Records the trial of an engine that could be run. It replaces an earlier trial of that engine.
  void record(const TrialPlace& place, const std::string& question, const std::string& engine,
              const EngineTrial& trial);
  // Adds the trials of `other` for engines without a trial here.
  void add_missing(const EngineTimings& other);

 private:
  using ByEngine = std::map<std::string, EngineTrial>;
  using ByQuestion = std::map<std::string, ByEngine>;
  std::map<TrialPlace, ByQuestion> places_;
};

// The timings of one device and its libraries, in a file or, without a file, in memory. Use an object from
// one thread at a time. A failure of the file never ends a run: `warn` reports it, and engines are tried
// again.
class EngineTimingsFile {
 public:
  using Warn = std::function<void(const std::string&)>;

  // A damaged file, or one of another format or version, is ignored, and save() replaces it. Otherwise save()
  // keeps the file's results for other devices.
  EngineTimingsFile(std::optional<std::filesystem::path> path, TrialPlace place, Warn warn);

  const EngineTrial* find(const std::string& question, const std::string& engine) const;
  void record(const std::string& question, const std::string& engine, const EngineTrial& trial);
  // Adds new results to the file. Runs that write at the same time take turns. If another run has written a
  // result for an engine since this object read the file, that result remains, and find() then returns it.
  // The file is replaced as a whole or not at all. A failure is reported once, and nothing is saved after it.
  void save();

 private:
  EngineTimings with_the_files() const;

  std::optional<std::filesystem::path> path_;
  TrialPlace place_;
  Warn warn_;
  EngineTimings timings_;
  EngineTimings read_;                                     // contents of the file when it was last read
  std::set<std::pair<std::string, std::string>> changed_;  // questions and engines recorded since that read
};

}  // namespace vdnn::cuda
