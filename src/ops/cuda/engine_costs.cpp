#include "src/ops/cuda/engine_costs.h"

#include "src/ops/cuda/engine_choice.h"
#include "src/ops/product_names.h"
#include "src/tape/order_costs.h"

namespace vdnn::cuda {

namespace {

Cost untimed_cost(const OpRecipe& op, std::size_t rank) {
  if (rank == 0) {
    return op.cost;
  }
  const Cost next = cost_of_next(*op.algorithms[rank - 1].cost);
  return is_generic_engine(op.algorithms[rank].name)
             ? slower_of(next, times(*op.algorithms[0].cost, kFallbackSlowdown))
             : next;
}

}  // namespace

void set_engine_costs(OpRecipe& op) {
  for (std::size_t rank = 0; rank < op.algorithms.size(); ++rank) {
    std::optional<Cost>& cost = op.algorithms[rank].cost;
    if (cost) {
      cost = Cost{.flops = op.cost.flops,
                  .bytes = op.cost.bytes,
                  .arithmetic = op.cost.arithmetic,
                  .seconds = cost->seconds};
    } else {
      cost = untimed_cost(op, rank);
    }
    cost->precision = ops::is_in_tf32(op.algorithms[rank].name) ? ProductPrecision::kTf32 : op.cost.precision;
  }
}

}  // namespace vdnn::cuda
