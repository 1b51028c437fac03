#include "src/run/lowered_run.h"

#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

#include "src/ops/classic/catalog.h"
#include "src/ops/cuda/cuda_catalog.h"
#include "src/ops/cuda/known_gpus.h"
#include "src/ops/product_names.h"
#include "vdnn/classic_catalog.h"
#include "vdnn/cpu_ops.h"
#include "vdnn/option_error.h"

namespace vdnn {

bool chooses_algorithms(Policy policy) {
  return policy == Policy::kDynamic || policy == Policy::kOptimal;
}

EngineTiming engine_timing(const RunOptions& options, Policy policy) {
  if (options.engine_timings) {
    return EngineTiming::kAll;
  }
  const bool policy_chooses = chooses_algorithms(policy) && !options.keep_algorithms;
  const bool alone = options.training.ranks == 1;
  const bool wanted = options.engine_trial_seconds.value_or(kEngineTrialSeconds) > 0;
  return policy_chooses && alone && wanted && !options.profile ? EngineTiming::kChoosable
                                                               : EngineTiming::kOff;
}

bool computes_on_cpu(const RunTarget& target) {
  return target.profile.name == "cpu";
}

namespace {

Lowered lower(const Network& network, const RunOptions& options, std::shared_ptr<const OpCatalog> catalog) {
  std::shared_ptr<const Tape> tape = lower_to_tape(network, *catalog, options.training);
  return {.library = nullptr, .catalog = std::move(catalog), .tape = std::move(tape)};
}

Lowered lower(const Network& network, const RunOptions& options, const std::shared_ptr<OpLibrary>& library) {
  Lowered lowered = lower(network, options, std::shared_ptr<const OpCatalog>(library, &library->catalog()));
  lowered.library = library;
  return lowered;
}

// The precisions of matrix products and convolutions on a device that has TF32.
ProductPrecisions precisions_of(const RunOptions& options) {
  const auto tf32_if = [](bool permitted) {
    return permitted ? ProductPrecision::kTf32 : ProductPrecision::kFp32;
  };
  if (options.tf32) {
    return {.convolutions = tf32_if(*options.tf32), .matrix_products = tf32_if(*options.tf32)};
  }
  return options.recorded_algorithms.empty() ? ProductPrecisions{.convolutions = ProductPrecision::kTf32}
                                             : ops::recorded_precisions(options.recorded_algorithms);
}

double most_trial_seconds(const RunOptions& options) {
  const double otherwise =
      options.engine_timings ? std::numeric_limits<double>::infinity() : kEngineTrialSeconds;
  return options.engine_trial_seconds.value_or(otherwise);
}

// The file that stores the measured times of engines. Returns nothing if times are not stored.
std::optional<std::filesystem::path> timings_file(const RunOptions& options) {
  if (options.engine_timings) {
    return options.engine_timings;
  }
  if (options.engine_cache) {
    // If the directories cannot be made, the error occurs when the file is written.
    std::error_code error;
    std::filesystem::create_directories(options.engine_cache->parent_path(), error);
  }
  return options.engine_cache;
}

// Throws InvalidOption with `reason` if `tf32` is requested. Call it for devices without TF32.
void require_no_tf32(const RunOptions& options, const std::string& reason) {
  if (options.tf32.value_or(false)) {
    throw InvalidOption({{.option = "tf32", .value = "true"}}, reason);
  }
}

// The first generation of GPUs with TF32 (Ampere).
constexpr int kTf32ComputeCapability = 80;

ProductPrecisions precisions_on_gpu(const RunOptions& options, const RunTarget& target) {
  const int capability = target.gpus->compute_capability(*target.gpu);
  if (capability >= kTf32ComputeCapability) {
    return precisions_of(options);
  }
  require_no_tf32(options, target.name + " has no TF32: its compute capability is " +
                               std::to_string(capability / 10) + "." + std::to_string(capability % 10) +
                               ", TF32 needs 8.0");
  return {};
}

// `so_far`: earlier trials of this run, which count towards the limit on trial time.
Lowered lower_for_gpu(const Network& network, const RunOptions& options, const RunTarget& target,
                      EngineTiming timing, const EngineTrialReport& so_far) {
  const ProductPrecisions precisions = precisions_on_gpu(options, target);
  const auto trials = std::make_shared<EngineTrialReport>(so_far);
  GpuOpsOptions asked{.precisions = precisions,
                      .engine_timing = timing,
                      .trial_report = trials,
                      .trial_bytes = target.budget_bytes - target.library_bytes,
                      .warn = options.warn};
  if (timing != EngineTiming::kOff) {
    asked.engine_timings = timings_file(options);
    asked.most_trial_seconds = most_trial_seconds(options);
  }
  try {
    Lowered lowered = lower(network, options, target.gpus->make_ops(*target.gpu, asked));
    lowered.precisions = precisions;
    lowered.engine_timing = timing;
    lowered.trials = trials;
    return lowered;
  } catch (const cuda::NoEngine& error) {
    throw InvalidArgument("network " + network.name() + " cannot be computed on " + target.name + ": " +
                          error.what());
  }
}

void require_no_engine_trials(const RunOptions& options, const RunTarget& target) {
  for (const auto& [option, given] :
       {std::pair("engine_timings", options.engine_timings.has_value()),
        std::pair("engine_trial_seconds", options.engine_trial_seconds.value_or(0) > 0)}) {
    if (given) {
      throw InvalidOption({{.option = option, .value = ""}},
                          "there are no engines to be timed on " + target.name + "; use cuda:N");
    }
  }
}

// Lowers the network with the catalog of the `cuda` driver. Returns nothing if the engines of a convolution
// are not known.
std::optional<Lowered> lower_with_known_engines(const Network& network, const RunOptions& options,
                                                const std::string& gpu, const ProductPrecisions& precisions) {
  std::shared_ptr<const cuda::EngineSource> engines = cuda::engines_of_gpu(gpu);
  if (!engines) {
    return std::nullopt;
  }
  try {
    return lower(network, options, std::make_shared<cuda::CudaCatalog>(std::move(engines), precisions));
  } catch (const cuda::NoEngine& error) {
    if (options.warn) {
      options.warn("network " + network.name() +
                   " is planned with the classic algorithms, since engines of sim:" + gpu +
                   " are not known: " + error.what());
    }
    return std::nullopt;
  }
}

// A network is either planned with known engines or with the classic algorithms, never with both. If the
// engines of one convolution are not known, the whole network has the classic algorithms, which multiply in
// the same types at the same rates.
Lowered lower_for_simulated_gpu(const Network& network, const RunOptions& options,
                                const SimProfile& profile) {
  const DataType storage = options.training.precision.storage;
  const FlopRates& rates = profile.flops_per_second;
  if (is_narrow(storage) && !((storage == DataType::kF16 ? rates.fp16 : rates.bf16) > 0)) {
    throw InvalidOption({{.option = "training.precision.storage", .value = to_string(storage)}},
                        "the profile of sim:" + profile.name + " has no rate of it (flops_per_second, " +
                            to_string(storage) + ")");
  }
  ProductPrecisions precisions;
  if (profile.flops_per_second.tf32 > 0) {
    precisions = precisions_of(options);
  } else {
    require_no_tf32(options,
                    "the profile of sim:" + profile.name + " has no rate of it (flops_per_second, tf32)");
  }
  std::optional<Lowered> lowered = lower_with_known_engines(network, options, profile.name, precisions);
  if (!lowered) {
    lowered = lower(network, options,
                    precisions == ProductPrecisions() && !is_narrow(storage)
                        ? make_classic_catalog()
                        : classic::make_tensor_core_catalog(profile, precisions, storage));
  }
  lowered->precisions = precisions;
  return *std::move(lowered);
}

}  // namespace

// `cpu` and the simulated `cpu` have the same library. Simulated GPUs have a catalog without kernels.
Lowered lower_for(const Network& network, const RunOptions& options, const RunTarget& target, Policy policy,
                  const EngineTrialReport& so_far) {
  if (target.gpu) {
    return lower_for_gpu(network, options, target, engine_timing(options, policy), so_far);
  }
  require_no_engine_trials(options, target);
  if (computes_on_cpu(target)) {
    require_no_tf32(options, "products are computed in fp32 on " + target.name + "; use cuda:N or sim:NAME");
    return lower(network, options, std::shared_ptr<OpLibrary>(make_cpu_ops({.threads = target.threads})));
  }
  return lower_for_simulated_gpu(network, options, target.profile);
}

void require_trial_seconds(const RunOptions& options) {
  const std::optional<double>& seconds = options.engine_trial_seconds;
  if (seconds && (!std::isfinite(*seconds) || *seconds < 0)) {
    throw InvalidOption({{.option = "engine_trial_seconds", .value = std::to_string(*seconds)}},
                        "it must be finite and not below 0");
  }
  if (seconds == 0.0 && options.engine_timings) {
    throw InvalidOption({{.option = "engine_trial_seconds", .value = "0"}},
                        "nothing would be timed for '" + options.engine_timings->string() + "'");
  }
}

}  // namespace vdnn
