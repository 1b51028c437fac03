#include "src/ops/cuda/engine_costs.h"

namespace vdnn::cuda {

namespace {

constexpr double kSlowdown = 1.05;  // from one engine to the next

Cost slower(Cost cost) {
  cost.flops *= kSlowdown;
  cost.bytes *= kSlowdown;
  cost.seconds *= kSlowdown;
  return cost;
}

}  // namespace

void set_engine_costs(OpRecipe& op) {
  Cost next = op.cost;
  for (Algorithm& algorithm : op.algorithms) {
    if (algorithm.cost) {
      next.seconds = algorithm.cost->seconds;
    }
    algorithm.cost = next;
    next = slower(next);
  }
}

}  // namespace vdnn::cuda
