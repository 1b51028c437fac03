#include "vdnn/nonfinite.h"

#include <bit>
#include <cstring>
#include <nlohmann/json.hpp>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "src/ops/loss_scaling.h"
#include "src/tape/narrow_values.h"
#include "src/train/nonfinite_floats.h"
#include "vdnn/error.h"

namespace vdnn {

namespace {

// A value, and its position in the order in which training computes values.
struct Found {
  NonfiniteValue value;
  std::uint64_t position = 0;  // the op's position on the tape, from 1; 0 if no op made the value

  auto order() const { return std::tuple(value.step, value.micro_step, position, value.rank); }
};

Found found(const NonfiniteFloats& floats, std::string name, Dims dims) {
  return {.value = {.value = std::move(name),
                    .dims = std::move(dims),
                    .elements = floats.elements,
                    .nonfinite = floats.count,
                    .first = floats.first,
                    .first_value = floats.value}};
}

// Examines the values of steps until it has found one that is not finite.
class FirstNonfinite {
 public:
  FirstNonfinite(const Tape& tape, std::optional<int> rank) : tape_(tape), rank_(rank) {}

  void look_at(const TrainingState& state) {
    for (const std::vector<ParameterValues>* const all : {&state.parameters, &state.optimizer}) {
      for (const ParameterValues& one : *all) {
        if (const auto floats = find_nonfinite(one.values); floats && !first_) {
          first_ = found(*floats, one.name, one.dims);
          first_->value.step = state.step;
          first_->value.rank = rank_;
        }
      }
    }
  }

  void look_at(const MadeValue& made, const StepScalars& scalars) {
    const Value& value = tape_.value(made.value);
    if (tape_.loss_scale() != kNone && value.kind == ValueKind::kGradientNorm) {
      forget_if_skipped(made, scalars);
      return;
    }
    if (first_ || !is_floating(value.type.data_type)) {
      return;
    }
    const bool narrow = is_narrow(value.type.data_type);
    const std::vector<float> wide = narrow ? widened(value.type.data_type, made.bytes) : std::vector<float>();
    const std::span values = narrow ? std::span<const float>(wide)
                                    : std::span(reinterpret_cast<const float*>(made.bytes.data()),
                                                made.bytes.size() / sizeof(float));
    if (const auto floats = find_nonfinite(values)) {
      first_ = found(*floats, value.name, value.type.dims);
      first_->value.step = scalars.step + 1;
      first_->value.micro_step = scalars.micro_step;
      first_->value.rank = rank_;
      if (made.op != kNone) {
        made_in_forward_ = tape_.op(made.op).phase == Phase::kForward;
        first_->value.op = tape_.op(made.op).name;
        first_->position = std::uint64_t{made.op} + 1;
      }
    }
  }

  const std::optional<Found>& first() const { return first_; }

 private:
  // Discards the found value if loss scaling has skipped the step. Overflowing gradients are no fault while a
  // smaller scale can make them finite.
  void forget_if_skipped(const MadeValue& made, const StepScalars& scalars) {
    LossScaledNorm norm;
    std::memcpy(&norm, made.bytes.data(), sizeof(norm));
    if (norm.skips != 0 && first_ && first_->value.step == scalars.step + 1 &&
        ops::may_be_mended(norm.loss_scale, !made_in_forward_)) {
      first_.reset();
    }
  }

  const Tape& tape_;
  std::optional<int> rank_;
  std::optional<Found> first_;
  bool made_in_forward_ = false;  // whether a forward op made first_
};

// --- between ranks -----------------------------------------------------------------------------------------

std::string to_text(const std::optional<Found>& found) {
  if (!found) {
    return "";
  }
  const NonfiniteValue& value = found->value;
  return nlohmann::json{value.step,
                        value.micro_step,
                        value.rank.value_or(0),
                        value.op,
                        value.value,
                        value.dims,
                        value.elements,
                        value.nonfinite,
                        value.first,
                        std::bit_cast<std::uint32_t>(value.first_value),
                        found->position}
      .dump();
}

Found from_text(const std::string& text) {
  const auto json = nlohmann::json::parse(text);
  return {.value = {.step = json[0],
                    .micro_step = json[1],
                    .rank = json[2].get<int>(),
                    .op = json[3],
                    .value = json[4],
                    .dims = json[5].get<Dims>(),
                    .elements = json[6],
                    .nonfinite = json[7],
                    .first = json[8],
                    .first_value = std::bit_cast<float>(json[9].get<std::uint32_t>())},
          .position = json[10]};
}

std::optional<Found> first_of_all_ranks(const std::optional<Found>& mine, ProcessGroup& processes) {
  std::optional<Found> first;
  for (const std::string& text : processes.gather_to_all(to_text(mine), "values that are not finite")) {
    if (!text.empty()) {
      Found other = from_text(text);
      if (!first || other.order() < first->order()) {
        first = std::move(other);
      }
    }
  }
  return first;
}

// --- the training ------------------------------------------------------------------------------------------

// The number of steps of the training run; the learning rate depends on it.
std::uint64_t steps_of(const PlannedRun& run, const DatasetSplits& data, const TrainOptions& options) {
  if (options.epochs == 0) {
    return options.steps;
  }
  const BatchOrder order{.samples = data.training->size(),
                         .batch = static_cast<std::int64_t>(run.global_batch()),
                         .shuffle = true};
  return options.epochs * order.batches_per_epoch();
}

TrainOptions once_more(const PlannedRun& run, const DatasetSplits& data, const TrainOptions& given,
                       std::uint64_t last_step) {
  const std::uint64_t begin = given.start ? given.start->step : 0;
  if (last_step <= begin) {
    throw InvalidArgument("step " + std::to_string(last_step) + " is not after step " +
                          std::to_string(begin) + ", from which training would continue");
  }
  TrainOptions options = given;
  options.steps = steps_of(run, data, given);
  options.epochs = 0;
  options.trace = false;
  options.replan.reset();
  options.learn = false;
  options.save = nullptr;
  options.compare_ranks_every = 0;
  options.allow_nonfinite = true;
  options.request = [left = last_step - begin]() mutable {
    return --left == 0 ? TrainingRequest::kStop : TrainingRequest::kNothing;
  };
  return options;
}

}  // namespace

std::string describe(const NonfiniteValue& value) {
  const NonfiniteFloats floats{
      .count = value.nonfinite, .elements = value.elements, .first = value.first, .value = value.first_value};
  return "step " + std::to_string(value.step) +
         (value.micro_step > 0 ? ", micro-step " + std::to_string(value.micro_step + 1) : "") +
         (value.rank ? ", rank " + std::to_string(*value.rank) : "") + ", " +
         (value.op.empty() ? "made by no op" : "op " + value.op) + ": " + value.value + " (" +
         to_string(value.dims) + ") has elements that are not finite: " + to_string(floats);
}

std::optional<NonfiniteValue> find_nonfinite(const PlannedRun& run, const DatasetSplits& data,
                                             const TrainOptions& given, std::uint64_t last_step) {
  ProcessGroup* const processes = run.options.training.ranks > 1 ? given.processes : nullptr;
  FirstNonfinite search(*run.tape, processes == nullptr ? std::nullopt : std::optional(processes->rank()));
  TrainOptions options = once_more(run, data, given, last_step);
  if (options.start) {
    search.look_at(*options.start);
  }
  options.session.steps_one_by_one = true;
  options.session.inspect = [&](const MadeValue& made, const StepScalars& scalars) {
    search.look_at(made, scalars);
  };
  Trainer(run, data, options).train({});
  const std::optional<Found> first =
      processes == nullptr ? search.first() : first_of_all_ranks(search.first(), *processes);
  return first ? std::optional(first->value) : std::nullopt;
}

}  // namespace vdnn
