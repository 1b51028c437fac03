#pragma once
// What trials of engines (engine_trials.h) came to, kept in a file from run to run: times, and who computed
// right. One file has room for many devices; what was found holds for the same GPU, driver, cuDNN and
// cudnn-frontend alone, so all of them are its key.

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

// Where engines were tried.
struct TrialPlace {
  std::string gpu;             // as its maker calls it
  std::string driver;          // version of CUDA that it is for
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
  // What text() wrote. Throws DataError where it is something else.
  explicit EngineTimings(std::string_view text);

  // JSON (docs/engine_timings.schema.json), a line a question. The same content, the same text.
  std::string text() const;

  // Null where nothing is known.
  const EngineTrial* find(const TrialPlace& place, const std::string& question,
                          const std::string& engine) const;
  // Of an engine that could be run. In place of what was known of it.
  void record(const TrialPlace& place, const std::string& question, const std::string& engine,
              const EngineTrial& trial);
  // What `other` has of engines of which nothing is known here.
  void add_missing(const EngineTimings& other);

 private:
  using ByEngine = std::map<std::string, EngineTrial>;
  using ByQuestion = std::map<std::string, ByEngine>;
  std::map<TrialPlace, ByQuestion> places_;
};

// The timings of one place, in a file or, without one, for as long as this object lives. Used by one thread
// at a time. No failure of the file ends a run: it is told to `warn`, and trials are made again.
class EngineTimingsFile {
 public:
  using Warn = std::function<void(const std::string&)>;

  // A file that is no such file, damaged, or of another version, is passed over and replaced by save(). What
  // it has of other places is kept.
  EngineTimingsFile(std::optional<std::filesystem::path> path, TrialPlace place, Warn warn);

  const EngineTrial* find(const std::string& question, const std::string& engine) const;
  void record(const std::string& question, const std::string& engine, const EngineTrial& trial);
  // Adds to the file what was recorded since. Runs that write to it at the same time take turns, and of what
  // two of them have recorded the first stays: find() then has what is in the file. The file is replaced as a
  // whole or not at all. A failure is told once; nothing is saved after it.
  void save();

 private:
  EngineTimings with_the_files() const;

  std::optional<std::filesystem::path> path_;
  TrialPlace place_;
  Warn warn_;
  EngineTimings timings_;
  EngineTimings read_;                                     // what was in the file when it was read last
  std::set<std::pair<std::string, std::string>> changed_;  // since then: questions and engines
};

}  // namespace vdnn::cuda
