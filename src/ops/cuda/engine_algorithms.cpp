#include "src/ops/cuda/engine_algorithms.h"

#include <algorithm>
#include <limits>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "src/ops/product_names.h"

namespace vdnn::cuda {

namespace {

// Returns first the timed engines, the fastest first, then the untimed engines in the library's order.
std::vector<Engine> fastest_first(std::vector<Engine> engines) {
  std::ranges::stable_sort(engines, {}, [](const Engine& engine) {
    return engine.seconds.value_or(std::numeric_limits<double>::infinity());
  });
  return engines;
}

// The engines that are the first choice under some limits: by the library's order, or by time among the timed
// engines.
std::vector<Engine> offered(const std::vector<Engine>& engines) {
  std::vector<Engine> timed = engines;
  std::erase_if(timed, [](const Engine& engine) { return !engine.seconds; });
  const std::vector<Engine> by_order = choosable(engines);
  const std::vector<Engine> by_time = choosable(fastest_first(std::move(timed)));
  std::vector<Engine> chosen = engines;
  std::erase_if(chosen, [&](const Engine& engine) {
    return std::ranges::find(by_order, engine) == by_order.end() &&
           std::ranges::find(by_time, engine) == by_time.end();
  });
  return chosen;
}

std::vector<Algorithm> algorithms_of(const EngineQuestion& question, std::vector<Engine> engines,
                                     ProductPrecision precision) {
  const EngineLimits limits = training_limits(ops::product_precision(question.elements, precision));
  std::erase_if(engines, [&](const Engine& engine) { return !permits(limits, engine); });
  if (engines.empty()) {
    throw NoEngine(question, precision == ProductPrecision::kTf32
                                 ? "no engine computes it deterministically in fp32 or TF32"
                                 : "no engine computes it deterministically");
  }
  std::vector<Algorithm> algorithms;
  for (const Engine& engine : fastest_first(offered(engines))) {
    const bool tf32 = engine.rounds_inputs() && !is_narrow(question.elements);
    algorithms.push_back(
        {.name = tf32 ? ops::in_tf32(engine.name) : engine.name, .workspace_bytes = engine.workspace_bytes});
    if (engine.seconds) {
      algorithms.back().cost = Cost{.seconds = *engine.seconds};
    }
  }
  return algorithms;
}

// Caches algorithms, since many layers have the same convolution. Thread-safe, since several threads call a
// catalog.
class Answers {
 public:
  Answers(std::shared_ptr<const EngineSource> source, ProductPrecision precision)
      : source_(std::move(source)), precision_(precision) {}

  std::vector<Algorithm> algorithms(const EngineQuestion& question) {
    const std::lock_guard lock(mutex_);
    const std::string key = to_string(question);
    auto known = known_.find(key);
    if (known == known_.end()) {
      known = known_.emplace(key, algorithms_of(question, source_->list(question), precision_)).first;
    }
    return known->second;
  }

 private:
  std::shared_ptr<const EngineSource> source_;
  ProductPrecision precision_;
  std::mutex mutex_;
  std::map<std::string, std::vector<Algorithm>> known_;
};

}  // namespace

classic::ConvolutionAlgorithms engine_algorithms(std::shared_ptr<const EngineSource> source,
                                                 ProductPrecision precision) {
  return [answers = std::make_shared<Answers>(std::move(source), precision)](
             const ops::Convolution& convolution, Direction pass, DataType elements) {
    return answers->algorithms({convolution, pass, elements});
  };
}

}  // namespace vdnn::cuda
