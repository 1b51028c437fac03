#include "fuzz/target.h"

namespace vdnn::fuzz {

const std::vector<Target>& targets() {
  static const std::vector<Target> kTargets{
      {"allocation_log", run_allocation_log, allocation_log_seeds},
      {"c_abi", run_c_abi, c_abi_seeds},
      {"checkpoint", run_checkpoint, checkpoint_seeds},
      {"cifar10", run_cifar10, cifar10_seeds},
      {"engine_timings", run_engine_timings, engine_timings_seeds},
      {"engines", run_engines, engines_seeds},
      {"fashion_mnist", run_fashion_mnist, fashion_mnist_seeds},
      {"idx", run_idx, idx_seeds},
      {"image", run_image, image_seeds},
      {"image_folder", run_image_folder, image_folder_seeds},
      {"learned_step", run_learned_step, learned_step_seeds},
      {"measured_costs", run_measured_costs, measured_costs_seeds},
      {"option_text", run_option_text, option_text_seeds},
      {"origin", run_origin, origin_seeds},
      {"safetensors", run_safetensors, safetensors_seeds},
      {"schedule", run_schedule, schedule_seeds},
      {"stash_abi", run_stash_abi, stash_abi_seeds},
      {"stream_pool", run_stream_pool, stream_pool_seeds},
  };
  return kTargets;
}

}  // namespace vdnn::fuzz
