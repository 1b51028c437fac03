#include "src/ops/cuda/engine_algorithms.h"

#include <limits>
#include <map>
#include <mutex>
#include <utility>

namespace vdnn::cuda {

namespace {

constexpr EngineLimits kPermitted{.workspace_bytes = std::numeric_limits<std::uint64_t>::max(),
                                  .deterministic = true,
                                  .rounded_inputs = false};

std::vector<Algorithm> algorithms_of(const EngineQuestion& question, std::vector<Engine> engines) {
  std::erase_if(engines, [](const Engine& engine) { return !permits(kPermitted, engine); });
  if (engines.empty()) {
    throw NoEngine(question, "no engine computes it in fp32 with the same bits twice");
  }
  std::vector<Algorithm> algorithms;
  for (Engine& engine : choosable(engines)) {
    algorithms.push_back({.name = std::move(engine.name), .workspace_bytes = engine.workspace_bytes});
  }
  return algorithms;
}

// A catalog is asked by several threads, and for the same convolution in many layers.
class Answers {
 public:
  explicit Answers(std::shared_ptr<const EngineSource> source) : source_(std::move(source)) {}

  std::vector<Algorithm> algorithms(const EngineQuestion& question) {
    const std::lock_guard lock(mutex_);
    const std::string key = to_string(question);
    auto known = known_.find(key);
    if (known == known_.end()) {
      known = known_.emplace(key, algorithms_of(question, source_->list(question))).first;
    }
    return known->second;
  }

 private:
  std::shared_ptr<const EngineSource> source_;
  std::mutex mutex_;
  std::map<std::string, std::vector<Algorithm>> known_;
};

}  // namespace

classic::ConvolutionAlgorithms engine_algorithms(std::shared_ptr<const EngineSource> source) {
  return [answers = std::make_shared<Answers>(std::move(source))](const ops::Convolution& convolution,
                                                                  Direction pass) {
    return answers->algorithms({convolution, pass, ElementType::kF32});
  };
}

}  // namespace vdnn::cuda
