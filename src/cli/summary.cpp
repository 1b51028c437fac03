#include "src/cli/summary.h"

#include <algorithm>
#include <cmath>
#include <iomanip>
#include <nlohmann/json.hpp>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "src/cli/json_fields.h"
#include "vdnn/size.h"

namespace vdnn {

namespace {

using Json = nlohmann::ordered_json;

std::uint64_t baseline_peak_bytes(const PlannedRun& run) {
  PlanOptions options = run.plan.options;
  options.policy = Policy::kBaseline;
  return predict_policy(run, options).peak_bytes;
}

std::uint64_t bytes_of(double average) {
  return static_cast<std::uint64_t>(std::llround(average));
}

const char* name_of(ProductPrecision precision) {
  switch (precision) {
    case ProductPrecision::kTf32:
      return "tf32";
    case ProductPrecision::kFp16:
      return "fp16";
    case ProductPrecision::kBf16:
      return "bf16";
    case ProductPrecision::kFp32:
      break;
  }
  return "fp32";
}

// Null if there are no engines to try.
Json engine_trials(const PlannedRun& run) {
  if (!run.trials) {
    return nullptr;
  }
  return {{"convolutions", run.trials->convolutions},
          {"engines", run.trials->engines},
          {"untimed", run.trials->untimed},
          {"seconds", run.trials->seconds}};
}

// The keys that a plan and a run share; the caller passes measured figures.
Json common_summary(const PlannedRun& run, const RunArguments& arguments, std::uint64_t peak_bytes,
                    double average_bytes, std::uint64_t host_bytes) {
  return {{"type", "summary"},
          {"model", run.tape->model()},
          {"batch", run.batch()},
          {"devices", run.devices()},
          {"machines", run.options.machines},
          {"global_batch", run.global_batch()},
          {"device", run.target.name},
          {"simulated", run.target.simulated},
          {"policy", to_string(run.plan.options.policy)},
          {"algorithms", to_string(run.plan.options.preference)},
          {"seed", arguments.seed.value()},
          {"threads", run.target.threads},
          {"algorithms_source", run.algorithms_source()},
          {"precision", run.network ? Json(to_string(run.options.training.precision.storage)) : Json()},
          {"product_precision", run.network ? to_json(run.product_precisions()) : Json()},
          {"engine_trials", engine_trials(run)},
          {"budget_bytes", run.target.budget_bytes},
          {"host_budget_bytes", run.target.host_budget_bytes},
          {"fits", run.fits()},
          {"smallest_budget_bytes", run.smallest_budget_bytes()},
          {"peak_bytes", peak_bytes},
          {"average_bytes", bytes_of(average_bytes)},
          {"library_bytes", run.target.library_bytes},
          {"host_bytes", host_bytes},
          {"baseline_peak_bytes", baseline_peak_bytes(run)},
          {"paper_baseline_bytes", paper_baseline_bytes(*run.tape, run.plan)},
          {"feature_map_bytes", run.tape->feature_map_bytes()},
          {"weight_bytes", run.tape->weight_bytes()},
          {"workspace_bytes", workspace_bytes(*run.tape, run.plan)},
          {"offload_bytes_per_step", offload_bytes(*run.tape, run.schedule)},
          {"recomputed_ops", recomputed_ops(run.schedule)},
          {"options", to_json(arguments)}};
}

double percent(double part, double whole) {
  return whole > 0 ? 100.0 * part / whole : 0;
}

bool updates_with_every_batch(const PlannedRun& run) {
  return run.global_batch() == static_cast<std::uint64_t>(run.batch());
}

void print_scaling(std::ostream& out, const PlannedRun& run, const Scaling& scaling) {
  out << "predicted update " << scaling.update_seconds * 1e3 << " ms";
  if (run.options.training.micro_steps > 1) {
    out << ", each micro-step before the last " << run.prediction.micro_step_seconds * 1e3 << " ms";
  }
  out << "; " << scaling.images_per_second << " images/s";
  if (run.options.training.ranks > 1) {
    out << ", " << 100 * scaling.efficiency << " % of the speed of separate devices\nreductions "
        << scaling.reduce_seconds * 1e3 << " ms per update, not hidden "
        << scaling.exposed_reduce_seconds * 1e3 << " ms";
  }
  out << "\n";
}

}  // namespace

Json to_json(const ProductPrecisions& used) {
  return {{"convolutions", name_of(used.convolutions)}, {"matrix_products", name_of(used.matrix_products)}};
}

const char* rates_of(const PlannedRun& run) {
  if (!run.network) {
    return "recorded";
  }
  return run.measured && !run.measured->modelled ? "measured" : "assumed";
}

namespace {

// Prints the source of the data for the prediction of a learned step.
void print_step(std::ostream& out, const PlannedRun& run) {
  const LearnedStep& step = *run.options.step;
  out << "times of ops are those of the learned step, recorded by " << run.algorithms_source()
      << "\nmemory and the link, at assumed or published rates (vdnn devices), are those of "
      << run.target.name << "; plans only offload\n";
  if (run.batch() != batch_of(step)) {
    out << "batch " << run.batch() << ": tensors and times in proportion to the recorded batch, "
        << batch_of(step) << ", except for memory in use throughout the step\n";
  }
}

}  // namespace

void print_rates(std::ostream& out, const PlannedRun& run) {
  if (!run.network) {
    print_step(out, run);
  }
  if (rates_of(run) == std::string_view("assumed")) {
    out << "times are estimates from assumed or published rates (vdnn devices); "
        << (run.target.simulated ? "vdnn profile on such a device measures them\n"
                                 : "vdnn profile measures them, for --profile\n");
  }
}

Json plan_summary(const PlannedRun& run, const Scaling& scaling, const RunArguments& arguments) {
  Json json = common_summary(run, arguments, run.prediction.peak_bytes, run.prediction.average_bytes,
                             run.prediction.host_bytes);
  json["rates"] = rates_of(run);
  json["predicted_step_seconds"] = run.prediction.step_seconds;
  json["predicted_micro_step_seconds"] = run.prediction.micro_step_seconds;
  json["predicted_update_seconds"] = scaling.update_seconds;
  json["predicted_images_per_second"] = scaling.images_per_second;
  json["predicted_efficiency"] = scaling.efficiency;
  json["predicted_reduce_seconds"] = scaling.reduce_seconds;
  json["predicted_exposed_reduce_seconds"] = scaling.exposed_reduce_seconds;
  json["oracle_step_seconds"] = oracle_step_seconds(run);
  json["lower_bound_step_seconds"] = lower_bound_step_seconds(run);
  return json;
}

Json train_summary(const PlannedRun& run, const TrainingResult& result, const RunArguments& arguments,
                   const TrainingArguments& training) {
  Json json = common_summary(run, arguments, result.peak_bytes, result.average_bytes, result.host_bytes);
  json["options"].update(to_json(training));
  json["rank_peak_bytes"] = result.rank_peak_bytes;
  json["predicted_peak_bytes"] = result.predicted_peak_bytes;
  json["step_seconds"] = result.step_seconds;
  json["stall_seconds"] = value_or_null(result.stall_seconds);
  json["images_per_second"] = result.images_per_second;
  json["loss"] = result.loss;
  if (result.test_accuracy) {
    json["test_accuracy"] = *result.test_accuracy;
  }
  json["loss_scale"] = result.loss_scaling ? Json(result.loss_scaling->scale) : Json();
  json["skipped_steps"] = result.loss_scaling ? Json(result.loss_scaling->skipped_steps) : Json();
  json["weights_sha256"] = result.weights_sha256;
  json["system_allocations_after_first_step"] = result.system_allocations_after_first_step;
  return json;
}

namespace {

// Prints product precisions if some are TF32 or could be.
void print_precision(std::ostream& out, const PlannedRun& run) {
  const DataType storage = run.options.training.precision.storage;
  if (is_narrow(storage)) {
    out << "\nfeature maps in " << to_string(storage);
  }
  if (run.precisions != ProductPrecisions() || run.target.profile.flops_per_second.tf32 > 0 ||
      is_narrow(storage)) {
    const ProductPrecisions used = run.product_precisions();
    out << "\nconvolutions in " << name_of(used.convolutions) << ", matrix products in "
        << name_of(used.matrix_products);
  }
}

void print_trials(std::ostream& out, const PlannedRun& run) {
  if (run.trials && run.trials->engines > 0) {
    out << "\ntried " << run.trials->engines << " engines of " << run.trials->convolutions
        << " convolutions' passes in " << run.trials->seconds << " s";
  }
  if (run.trials && run.trials->untimed > 0) {
    out << "\n"
        << run.trials->untimed
        << " convolutions' passes were not timed; a larger --engine-trial-seconds times them";
  }
}

}  // namespace

void print_run(std::ostream& out, const PlannedRun& run) {
  out << run.tape->model() << ", batch " << run.batch() << ", on " << run.target.name;
  if (run.target.simulated) {
    out << " (simulated: " << run.target.profile.source << "; algorithms: " << run.algorithms_source() << ")";
  } else if (run.options.profile) {
    out << " (" << run.algorithms_source() << ")";
  }
  if (!updates_with_every_batch(run)) {
    out << "\nglobal batch " << run.global_batch() << ": " << run.batch() << " x " << run.devices()
        << " devices x " << run.options.machines << " machines x " << run.options.training.micro_steps
        << " batches per update";
  }
  if (run.network) {
    print_precision(out, run);
  }
  print_trials(out, run);
  out << "\npolicy " << to_string(run.plan.options.policy) << ", algorithms "
      << to_string(run.plan.options.preference) << ", budget " << format_size(run.target.budget_bytes)
      << ", smallest possible " << format_size(run.smallest_budget_bytes()) << "\n";
}

void print_other_algorithms(std::ostream& out, const PlannedRun& run) {
  constexpr std::size_t kMostNames = 3;
  const std::vector<std::string> ops = ops_with_other_algorithms(run);
  if (ops.empty()) {
    return;
  }
  const std::size_t named = std::min(ops.size(), kMostNames);
  out << "results differ in bits from those of policy none: " << ops.size()
      << (ops.size() == 1 ? " op has another algorithm (" : " ops have other algorithms (");
  for (std::size_t op = 0; op < named; ++op) {
    out << (op == 0 ? "" : ", ") << ops[op];
  }
  if (ops.size() > named) {
    out << " and " << ops.size() - named << " more";
  }
  out << "); --keep-algorithms keeps those of policy none\n";
}

void print_prediction(std::ostream& out, const PlannedRun& run, const Scaling& scaling) {
  const Prediction& prediction = run.prediction;
  const std::uint64_t baseline = baseline_peak_bytes(run);
  out << std::fixed << std::setprecision(1) << (run.fits() ? "fits" : "does not fit") << ": predicted peak "
      << format_size(prediction.peak_bytes) << ", " << percent(prediction.peak_bytes, baseline)
      << " % of the baseline's " << format_size(baseline) << "\n"
      << "average " << format_size(bytes_of(prediction.average_bytes)) << ", page-locked "
      << format_size(prediction.host_bytes) << ", offloaded per step "
      << format_size(offload_bytes(*run.tape, run.schedule)) << "\n"
      << "predicted step " << prediction.step_seconds * 1e3 << " ms, stalled "
      << prediction.stall_seconds * 1e3 << " ms; oracle " << oracle_step_seconds(run) * 1e3
      << " ms, lower bound " << lower_bound_step_seconds(run) * 1e3 << " ms\n";
  if (!updates_with_every_batch(run)) {
    print_scaling(out, run, scaling);
  }
  print_rates(out, run);
}

void print_result(std::ostream& out, const PlannedRun& run, const TrainingResult& result) {
  const std::uint64_t baseline = baseline_peak_bytes(run);
  out << std::fixed << std::setprecision(1) << result.steps << " steps, " << result.images_per_second
      << " images/s, step " << result.step_seconds * 1e3 << " ms";
  if (result.stall_seconds) {
    out << ", stalled " << *result.stall_seconds * 1e3 << " ms";
  }
  out << "\npeak " << format_size(result.peak_bytes) << " (predicted "
      << format_size(result.predicted_peak_bytes) << "), " << percent(result.peak_bytes, baseline)
      << " % of the baseline's " << format_size(baseline) << "\n"
      << std::setprecision(4) << "loss ";
  if (std::isnan(result.loss)) {
    out << "nan";  // without its sign, which has no meaning
  } else {
    out << result.loss;
  }
  if (result.test_accuracy) {
    out << std::setprecision(2) << ", test accuracy " << 100 * *result.test_accuracy << " %";
  }
  out << "\nweights " << result.weights_sha256 << "\n";
}

}  // namespace vdnn
