#include "src/ops/cuda/tried_engines.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <sstream>
#include <utility>

namespace vdnn::cuda {

namespace {

// Tries the engines of one question.
class Selection {
 public:
  Selection(const TriedEnginesParts& parts, const TriedEnginesOptions& options,
            const EngineQuestion& question)
      : parts_(parts), options_(options), question_(question), text_(to_string(question)) {}

  // Returns the engines of the list that are correct, in the same order, with their times. All `engines` must
  // be permitted.
  std::vector<Engine> of(std::vector<Engine> engines) {
    timed_ = wants_times() && !left_untimed(engines) && has_time();
    drop_known(engines);
    for (std::vector<Engine> untried = untried_of(engines); !untried.empty(); untried = untried_of(engines)) {
      if (!try_out(untried, engines)) {
        complete_ = false;
        break;
      }
    }
    if (wants_times()) {
      note_whether_timed(engines);
    }
    parts_.timings->save();
    if (wants_times()) {
      go_by_timings(engines);
    }
    return engines;
  }

  const std::string& reasons() const { return reasons_; }

 private:
  bool wants_times() const { return options_.timing != EngineTiming::kOff; }

  ProductPrecision precision() const {
    return options_.limits.tf32 ? ProductPrecision::kTf32 : ProductPrecision::kFp32;
  }
  bool has_time() const { return parts_.report->seconds < options_.most_seconds; }

  // True if an earlier run could not time this question within a time limit that was at least this run's.
  bool left_untimed(const std::vector<Engine>& engines) const {
    return std::ranges::any_of(engines, [&](const Engine& engine) {
      const EngineTrial* const trial = parts_.timings->find(text_, engine.name);
      return trial != nullptr && trial->untimed_within(precision()).value_or(-1) >= options_.most_seconds;
    });
  }

  const EngineTrial* known(const Engine& engine) const {
    const EngineTrial* const trial = parts_.timings->find(text_, engine.name);
    const bool enough = trial != nullptr && (!trial->right() || trial->seconds || !timed_);
    return enough ? trial : nullptr;
  }

  // The engines to try: all, if all are to be timed; otherwise only those that are the first choice under
  // some limits.
  std::vector<Engine> compared(const std::vector<Engine>& engines) const {
    return timed_ && options_.timing == EngineTiming::kAll ? engines : choosable(engines);
  }

  // Records whether the question was timed, so that a later run with the same or a smaller time limit leaves
  // exactly the same engines untimed.
  void note_whether_timed(const std::vector<Engine>& engines) {
    const std::optional<double> untimed = timed_ ? std::nullopt : std::optional(options_.most_seconds);
    if (!timed_ && left_untimed(engines)) {
      return;
    }
    for (const Engine& engine : compared(engines)) {
      if (const EngineTrial* const trial = parts_.timings->find(text_, engine.name);
          trial != nullptr && trial->untimed_within(precision()) != untimed) {
        EngineTrial noted = *trial;
        noted.untimed_within(precision()) = untimed;
        parts_.timings->record(text_, engine.name, noted);
      }
    }
  }

  // Uses the results in the file, since another run may have written to it. If some times are missing because
  // of the time limit, no times are used, and the library's order decides.
  void go_by_timings(std::vector<Engine>& engines) {
    drop_known(engines);
    timed_ = timed_ && !left_untimed(engines);
    parts_.report->untimed += static_cast<std::uint64_t>(!timed_);
    if (!timed_ || !complete_) {
      return;
    }
    const std::vector<Engine> of_interest = compared(engines);
    for (Engine& engine : engines) {
      if (std::ranges::find(of_interest, engine.name, &Engine::name) != of_interest.end()) {
        const EngineTrial* const trial = known(engine);
        engine.seconds = trial != nullptr ? trial->seconds : std::nullopt;
      }
    }
  }

  void refuse(const Engine& engine, const std::string& why) {
    parts_.warn("engine " + engine.name + " is not used for " + text_ + ": " + why);
    reasons_ += (reasons_.empty() ? "" : "; ") + engine.name + ": " + why;
  }

  static std::string wrong(const EngineTrial& trial) {
    std::ostringstream text;
    text << "its result is off by " << trial.worst_error << ", rounding explains at most " << trial.tolerance;
    return text.str();
  }

  void drop_known(std::vector<Engine>& engines) {
    std::erase_if(engines, [&](const Engine& engine) {
      const EngineTrial* const trial = known(engine);
      if (trial == nullptr || trial->right()) {
        return false;
      }
      refuse(engine, wrong(*trial));
      return true;
    });
  }

  std::vector<Engine> untried_of(const std::vector<Engine>& engines) const {
    std::vector<Engine> untried = compared(engines);
    std::erase_if(untried, [&](const Engine& engine) {
      return known(engine) != nullptr || std::ranges::find(without_room_, engine.name) != without_room_.end();
    });
    return untried;
  }

  // Removes failing engines from `engines`. Returns false if the operands do not fit into memory; then no op
  // fits either. After the time limit, the remaining engines are tried without timing.
  bool try_out(const std::vector<Engine>& untried, std::vector<Engine>& engines) {
    std::vector<EngineTrial> trials;
    const double begin = parts_.clock();
    const auto in_time = [&] {
      return parts_.report->seconds + (parts_.clock() - begin) < options_.most_seconds;
    };
    try {
      trials = timed_ ? parts_.trials->run(question_, untried, TrialKind::kTimed, in_time)
                      : parts_.trials->run(question_, untried, TrialKind::kOfResults);
    } catch (const OutOfMemory& error) {
      parts_.warn("engines are not tried for " + text_ + ": " + error.what());
      return false;
    }
    count(trials.size(), parts_.clock() - begin);
    for (std::size_t i = 0; i < trials.size(); ++i) {
      settle(untried[i], trials[i], engines);
    }
    timed_ = timed_ && trials.size() == untried.size();
    return true;
  }

  void count(std::size_t engines, double seconds) {
    parts_.report->convolutions += static_cast<std::uint64_t>(!std::exchange(counted_, true));
    parts_.report->engines += engines;
    parts_.report->seconds += seconds;
  }

  void settle(const Engine& engine, EngineTrial trial, std::vector<Engine>& engines) {
    if (trial.no_room) {
      without_room_.push_back(engine.name);
      return;
    }
    if (trial.failure.empty()) {
      if (const EngineTrial* const before = parts_.timings->find(text_, engine.name);
          before != nullptr && trial.right()) {
        trial.untimed_within_seconds = before->untimed_within_seconds;
        trial.untimed_within_seconds_tf32 = before->untimed_within_seconds_tf32;
      }
      parts_.timings->record(text_, engine.name, trial);
    }
    if (!trial.right()) {
      refuse(engine, trial.failure.empty() ? wrong(trial) : trial.failure);
      std::erase(engines, engine);
    }
  }

  const TriedEnginesParts& parts_;
  const TriedEnginesOptions& options_;
  const EngineQuestion& question_;
  const std::string text_;
  bool timed_ = false;    // whether this question's engines are timed
  bool complete_ = true;  // whether all compared engines were tried
  bool counted_ = false;  // whether this question is in the report
  std::vector<std::string> without_room_;
  std::string reasons_;
};

}  // namespace

TriedEngines::TriedEngines(TriedEnginesParts parts, const TriedEnginesOptions& options)
    : parts_(std::move(parts)), options_(options) {
  if (!parts_.report) {
    parts_.report = std::make_shared<EngineTrialReport>();
  }
  if (!parts_.clock) {
    parts_.clock = [] {
      return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
    };
  }
}

std::string TriedEngines::name() const {
  return parts_.source->name() + (options_.timing == EngineTiming::kAll ? ", timed" : "");
}

std::vector<Engine> TriedEngines::do_list(const EngineQuestion& question) const {
  std::vector<Engine> permitted = parts_.source->list(question);
  const auto others = std::stable_partition(permitted.begin(), permitted.end(), [&](const Engine& engine) {
    return permits(options_.limits, engine);
  });
  std::vector<Engine> untried(others, permitted.end());
  permitted.erase(others, permitted.end());
  if (permitted.empty()) {
    return untried;
  }
  Selection selection(parts_, options_, question);
  std::vector<Engine> engines = selection.of(std::move(permitted));
  if (engines.empty()) {
    throw NoEngine(question,
                   "no engine of " + parts_.source->name() + " passed its trial: " + selection.reasons());
  }
  engines.insert(engines.end(), untried.begin(), untried.end());
  return engines;
}

}  // namespace vdnn::cuda
