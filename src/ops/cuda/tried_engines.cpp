#include "src/ops/cuda/tried_engines.h"

#include <algorithm>
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
    drop_known(engines);
    for (std::vector<Engine> untried = untried_of(engines); !untried.empty(); untried = untried_of(engines)) {
      if (!try_out(untried, engines)) {
        break;
      }
    }
    if (options_.by_time) {
      sort_by_time(engines);
    }
    parts_.timings->save();
    return engines;
  }

  const std::string& reasons() const { return reasons_; }

 private:
  const EngineTrial* known(const Engine& engine) const {
    const EngineTrial* const trial = parts_.timings->find(text_, engine.name);
    const bool enough = trial != nullptr && (!trial->right() || trial->seconds || !options_.by_time);
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
    std::vector<Engine> untried = options_.by_time ? engines : choosable(engines);
    std::erase_if(untried, [&](const Engine& engine) {
      return known(engine) != nullptr || std::ranges::find(without_room_, engine.name) != without_room_.end();
    });
    return untried;
  }

  // Drops from `engines` what fails. False where nothing can be tried: the operands have no room, so no op
  // will have it either.
  bool try_out(const std::vector<Engine>& untried, std::vector<Engine>& engines) {
    std::vector<EngineTrial> trials;
    try {
      trials = parts_.trials->run(question_, untried);
    } catch (const OutOfMemory& error) {
      parts_.warn("engines are not tried for " + text_ + ": " + error.what());
      return false;
    }
    for (std::size_t i = 0; i < untried.size(); ++i) {
      settle(untried[i], trials[i], engines);
    }
    return true;
  }

  void settle(const Engine& engine, const EngineTrial& trial, std::vector<Engine>& engines) {
    if (trial.no_room) {
      without_room_.push_back(engine.name);
      return;
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
  std::vector<std::string> without_room_;
  std::string reasons_;
};

}  // namespace

TriedEngines::TriedEngines(TriedEnginesParts parts, const TriedEnginesOptions& options)
    : parts_(std::move(parts)), options_(options) {}

std::string TriedEngines::name() const {
  return parts_.source->name() + (options_.by_time ? ", timed" : "");
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
