// Lowering turns the recipes of a catalog into ops over values. The parts (lowering/) append the forward
// pass, the backward pass, the updates and the sums over ranks to one tape. Their headers state the rules.

#include <algorithm>
#include <cmath>
#include <utility>
#include <variant>

#include "src/network/lowering/backward.h"
#include "src/network/lowering/forward.h"
#include "src/network/lowering/loss_scaler.h"
#include "src/network/lowering/lowering_state.h"
#include "src/network/lowering/reductions.h"
#include "src/network/lowering/updates.h"
#include "vdnn/error.h"
#include "vdnn/network.h"

namespace vdnn {

namespace lowering {

namespace {

float loss_weight(const OpSpec& spec) {
  return std::visit(
      [](const auto& loss) -> float {
        if constexpr (requires { loss.weight; }) {
          return loss.weight;
        } else {
          return 0;
        }
      },
      spec);
}

// Lists the values that the host reads after a step: the metrics of the losses, the network's outputs, the
// norm of the gradients, and the values that the options name. This is also their order. The norm shows
// whether training diverges.
void list_results(LoweringState& state, ValueId gradient_norm) {
  for (const Layer& each : state.network.layers()) {
    if (is_loss(each.spec)) {
      state.parts.results.push_back(state.metrics[state.parts.loss_weights.size()]);
      state.parts.loss_weights.push_back(loss_weight(each.spec));
    }
  }
  const auto add = [&state](ValueId value) {
    if (std::ranges::find(state.parts.results, value) == state.parts.results.end()) {
      state.parts.results.push_back(value);
    }
  };
  for (const std::uint32_t output : state.network.outputs()) {
    add(state.feature_maps[output]);
  }
  if (state.training == nullptr) {
    return;
  }
  if (gradient_norm != kNone) {
    add(gradient_norm);
  }
  for (const std::string& name : state.training->results) {
    const auto found = std::ranges::find(state.parts.values, name, &Value::name);
    if (found == state.parts.values.end()) {
      throw InvalidArgument("network " + state.network.name() + ": there is no value '" + name +
                            "' for the host to read");
    }
    if (found->persistent() || found->loaded()) {
      throw InvalidArgument("network " + state.network.name() + ": '" + name + "' is not computed in a step");
    }
    add(static_cast<ValueId>(found - state.parts.values.begin()));
  }
}

std::shared_ptr<const Tape> lower(const Network& network, const OpCatalog& catalog,
                                  const PrecisionOptions& precision, const TrainingOptions* training) {
  LoweringState state(network.with_precision(precision), catalog, training);
  state.parts.model = state.network.name();
  Reductions reductions(state);
  LossScaler loss_scaler(state);
  Updates updates(state, reductions);
  ForwardLowering forward(state, reductions);
  forward.declare_inputs();
  if (training != nullptr) {
    loss_scaler.declare_scale();
  }
  for (std::uint32_t id = 0; id < state.layers.size(); ++id) {
    forward.lower(id);
  }
  if (training != nullptr) {
    reductions.reduce_metrics();
    BackwardLowering(state, reductions, loss_scaler, updates).run();
    reductions.reduce_bucket();
    updates.finish();
    loss_scaler.lower_update(updates.gradient_norm());
  }
  list_results(state, updates.gradient_norm());
  return std::make_shared<const Tape>(std::move(state.parts));
}

}  // namespace

}  // namespace lowering

namespace {

void require_valid_options(const TrainingOptions& options) {
  if (options.clip_norm && !(*options.clip_norm > 0 && std::isfinite(*options.clip_norm))) {
    throw InvalidArgument("gradients clipped to a norm of " + std::to_string(*options.clip_norm) +
                          ": it must be positive");
  }
  const LossScaling& scaling = options.loss_scaling;
  if (!(scaling.initial >= kLeastLossScale && std::isfinite(scaling.initial))) {
    throw InvalidArgument("a loss scale of " + std::to_string(scaling.initial) +
                          ": it must be a number from 2^-24 up");
  }
  if (!(scaling.growth >= 1 && std::isfinite(scaling.growth)) ||
      !(scaling.backoff > 0 && scaling.backoff < 1) || scaling.growth_interval == 0) {
    throw InvalidArgument("loss scaling: growth " + std::to_string(scaling.growth) +
                          " must be at least 1, backoff " + std::to_string(scaling.backoff) +
                          " above 0 and below 1, growth interval " + std::to_string(scaling.growth_interval) +
                          " at least 1");
  }
  if (!is_floating(options.reduce_precision)) {
    throw InvalidArgument(std::string("gradients summed over ranks in ") +
                          to_string(options.reduce_precision) + ": supported are fp32, fp16 and bf16");
  }
  if (options.ranks == 0 || options.micro_steps == 0 || options.bucket_bytes == 0) {
    throw InvalidArgument("training by " + std::to_string(options.ranks) + " ranks, " +
                          std::to_string(options.micro_steps) + " micro-steps per update, in buckets of " +
                          std::to_string(options.bucket_bytes) + " bytes: all must be at least 1");
  }
}

}  // namespace

std::shared_ptr<const Tape> lower_to_tape(const Network& network, const OpCatalog& catalog,
                                          const TrainingOptions& options) {
  require_valid_options(options);
  return lowering::lower(network, catalog, options.precision, &options);
}

std::shared_ptr<const Tape> lower_to_evaluation_tape(const Network& network, const OpCatalog& catalog,
                                                     const PrecisionOptions& precision) {
  return lowering::lower(network, catalog, precision, nullptr);
}

}  // namespace vdnn
