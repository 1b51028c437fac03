#include "src/ops/cuda/tried_engines.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <optional>
#include <sstream>
#include <utility>

namespace vdnn::cuda {

namespace {

// One question's engines while they are tried.
class Selection {
 public:
  Selection(const TriedEnginesParts& parts, const TriedEnginesOptions& options,
            const EngineQuestion& question)
      : parts_(parts), options_(options), question_(question), text_(to_string(question)) {}

  // Those of `engines`, all of them permitted, that are right, in their order.
  std::vector<Engine> of(std::vector<Engine> engines) {
    timed_ = wants_times() && !left_untimed(engines) && parts_.report->seconds < options_.most_seconds;
    drop_known(engines);
    for (std::vector<Engine> untried = untried_of(engines); !untried.empty(); untried = untried_of(engines)) {
      if (!try_out(untried, engines)) {
        break;
      }
    }
    if (wants_times()) {
      sort_by_time(engines);
      const bool any_time =
          std::ranges::any_of(engines, [](const Engine& e) { return e.seconds.has_value(); });
      parts_.report->untimed += static_cast<std::uint64_t>(!timed_ && !any_time);
    }
    parts_.timings->save();
    return engines;
  }

  const std::string& reasons() const { return reasons_; }

 private:
  bool wants_times() const { return options_.timing != EngineTiming::kOff; }

  // Was time up when the question came in an earlier run, which had no less time?
  bool left_untimed(const std::vector<Engine>& engines) const {
    return std::ranges::any_of(engines, [&](const Engine& engine) {
      const EngineTrial* const trial = parts_.timings->find(text_, engine.name);
      return trial != nullptr && trial->untimed_within_seconds.value_or(-1) >= options_.most_seconds;
    });
  }

  const EngineTrial* known(const Engine& engine) const {
    const EngineTrial* const trial = parts_.timings->find(text_, engine.name);
    const bool enough = trial != nullptr && (!trial->right() || trial->seconds || !timed_);
    return enough ? trial : nullptr;
  }

  void sort_by_time(std::vector<Engine>& engines) const {
    for (Engine& engine : engines) {
      const EngineTrial* const trial = known(engine);
      engine.seconds = trial != nullptr ? trial->seconds : std::nullopt;
    }
    std::ranges::stable_sort(engines, {}, [](const Engine& engine) {
      return engine.seconds.value_or(std::numeric_limits<double>::infinity());
    });
  }

  void refuse(const Engine& engine, const std::string& why) {
    parts_.warn("engine " + engine.name + " is not used for " + text_ + ": " + why);
    reasons_ += (reasons_.empty() ? "" : "; ") + engine.name + ": " + why;
  }

  static std::string wrong(const EngineTrial& trial) {
    std::ostringstream text;
    text << "its result is off by " << trial.worst_error << ", rounding explains " << trial.tolerance;
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
    const bool all = timed_ && options_.timing == EngineTiming::kAll;
    std::vector<Engine> untried = all ? engines : choosable(engines);
    std::erase_if(untried, [&](const Engine& engine) {
      return known(engine) != nullptr || std::ranges::find(without_room_, engine.name) != without_room_.end();
    });
    return untried;
  }

  // Drops from `engines` what fails. False where nothing can be tried: the operands have no room, so no op
  // will have it either.
  bool try_out(const std::vector<Engine>& untried, std::vector<Engine>& engines) {
    std::vector<EngineTrial> trials;
    const double begin = parts_.clock();
    try {
      trials = parts_.trials->run(question_, untried, timed_ ? TrialKind::kTimed : TrialKind::kOfResults);
    } catch (const OutOfMemory& error) {
      parts_.warn("engines are not tried for " + text_ + ": " + error.what());
      return false;
    }
    count(untried.size(), parts_.clock() - begin);
    for (std::size_t i = 0; i < untried.size(); ++i) {
      settle(untried[i], trials[i], engines);
    }
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
    if (wants_times() && !timed_ && trial.right()) {
      trial.untimed_within_seconds = options_.most_seconds;
    }
    if (trial.failure.empty()) {
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
  bool timed_ = false;    // this question's engines are
  bool counted_ = false;  // this question is
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
  return parts_.source->name() + (options_.timing == EngineTiming::kOff ? "" : ", timed");
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
                   "no engine of " + parts_.source->name() + " stood its trial: " + selection.reasons());
  }
  engines.insert(engines.end(), untried.begin(), untried.end());
  return engines;
}

}  // namespace vdnn::cuda
