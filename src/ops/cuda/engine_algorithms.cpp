#include "src/ops/cuda/engine_algorithms.h"

#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "src/ops/product_names.h"

namespace vdnn::cuda {

namespace {

std::vector<Algorithm> algorithms_of(const EngineQuestion& question, std::vector<Engine> engines,
                                     ProductPrecision precision) {
  const EngineLimits limits = training_limits(precision);
  std::erase_if(engines, [&](const Engine& engine) { return !permits(limits, engine); });
  if (engines.empty()) {
    throw NoEngine(question, precision == ProductPrecision::kTf32
                                 ? "no engine computes it in fp32 or TF32 with the same bits twice"
                                 : "no engine computes it in fp32 with the same bits twice");
  }
  std::vector<Algorithm> algorithms;
  for (const Engine& engine : choosable(engines)) {
    algorithms.push_back({.name = engine.rounds_inputs() ? ops::in_tf32(engine.name) : engine.name,
                          .workspace_bytes = engine.workspace_bytes});
    if (engine.seconds) {
      algorithms.back().cost = Cost{.seconds = *engine.seconds};
    }
  }
  return algorithms;
}

// A catalog is asked by several threads, and for the same convolution in many layers.
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
             const ops::Convolution& convolution, Direction pass) {
    return answers->algorithms({convolution, pass, ElementType::kF32});
  };
}

}  // namespace vdnn::cuda
