#include "bench/zoo_allocations.h"

#include <algorithm>
#include <memory>

#include "bench/allocations_of_step.h"
#include "src/ops/cuda/cuda_catalog.h"
#include "src/ops/cuda/known_gpus.h"
#include "src/ops/cuda/recorded_engines.h"
#include "vdnn/zoo.h"

namespace vdnn::bench {

namespace {

std::shared_ptr<const cuda::EngineSource> recorded_h200() {
  const auto gpus = cuda::known_gpus();
  const auto h200 = std::ranges::find(gpus, "h200", &cuda::KnownGpu::name);
  return std::make_shared<cuda::RecordedEngines>(h200->recorded_engines);
}

}  // namespace

void each_zoo_log(const std::function<void(const std::string& name, const AllocationLog& log)>& take) {
  const cuda::CudaCatalog catalog(recorded_h200());
  for (const std::string& model : model_names()) {
    const auto tape =
        lower_to_tape(make_model({.model = model}), catalog, {.optimizer = SgdSpec{.momentum = 0.9F}});
    for (const Policy policy :
         {Policy::kBaseline, Policy::kOffloadNone, Policy::kOffloadConv, Policy::kOffloadAll}) {
      const Plan plan = make_plan(*tape, {.policy = policy});
      take(model + "-" + to_string(policy), allocations_of_step(make_schedule(*tape, plan)));
    }
  }
}

}  // namespace vdnn::bench
