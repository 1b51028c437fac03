#include "src/ops/cuda/engine_algorithms.h"

#include <map>
#include <mutex>
#include <string_view>
#include <utility>

namespace vdnn::cuda {

namespace {

constexpr std::string_view kInTf32 = " in tf32";

// By cuBLASLt, which filter_layers.cpp names; everything else that rounds is an engine of a convolution.
bool is_matrix_product(const std::string& algorithm) {
  return algorithm.starts_with("cublaslt");
}

std::vector<Algorithm> algorithms_of(const EngineQuestion& question, std::vector<Engine> engines,
                                     ProductPrecision precision) {
  const EngineLimits limits = training_limits(precision);
  std::erase_if(engines, [&](const Engine& engine) { return !permits(limits, engine); });
  if (engines.empty()) {
    throw NoEngine(question, "no engine computes it in fp32 with the same bits twice");
  }
  std::vector<Algorithm> algorithms;
  for (const Engine& engine : choosable(engines)) {
    algorithms.push_back({.name = engine.rounds_inputs() ? in_tf32(engine.name) : engine.name,
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

std::string algorithms_source(const EngineSource& source, const ProductPrecisions& precisions) {
  const bool convolutions = precisions.convolutions == ProductPrecision::kTf32;
  const bool matrix_products = precisions.matrix_products == ProductPrecision::kTf32;
  if (convolutions && matrix_products) {
    return source.name() + ", tf32";
  }
  return source.name() + (convolutions      ? ", tf32 convolutions"
                          : matrix_products ? ", tf32 matrix products"
                                            : "");
}

std::string in_tf32(const std::string& name) {
  return name + std::string(kInTf32);
}

bool is_in_tf32(const std::string& algorithm) {
  return algorithm.ends_with(kInTf32);
}

std::string without_precision(const std::string& algorithm) {
  return is_in_tf32(algorithm) ? algorithm.substr(0, algorithm.size() - kInTf32.size()) : algorithm;
}

ProductPrecisions recorded_precisions(const std::map<std::string, std::string>& algorithms) {
  ProductPrecisions precisions;
  for (const auto& [op, algorithm] : algorithms) {
    if (is_in_tf32(algorithm)) {
      (is_matrix_product(algorithm) ? precisions.matrix_products : precisions.convolutions) =
          ProductPrecision::kTf32;
    }
  }
  return precisions;
}

}  // namespace vdnn::cuda
