#include "src/cli/option_flags.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>

#include "vdnn/size.h"

namespace vdnn {

namespace {

// How a flag's value is written.
enum class FlagValue : std::uint8_t { kAsIs, kNone, kSize, kBillions };

struct OptionFlag {
  std::string_view option;
  std::string_view flag;
  FlagValue value = FlagValue::kAsIs;
};

constexpr std::array kFlags{
    OptionFlag{"crop_padding", "--crop-padding"},
    OptionFlag{"device", "--device"},
    OptionFlag{"engine_timings", "--engine-timings"},
    OptionFlag{"engine_trial_seconds", "--engine-trial-seconds"},
    OptionFlag{"epochs", "--epochs"},
    OptionFlag{"from_bytes", "--from", FlagValue::kSize},
    OptionFlag{"global_batch", "--global-batch"},
    OptionFlag{"graph", "--graph", FlagValue::kNone},
    OptionFlag{"host_memory_bytes", "--host-memory", FlagValue::kSize},
    OptionFlag{"images_per_second", "--images-per-second"},
    OptionFlag{"keep_algorithms", "without --keep-algorithms,", FlagValue::kNone},
    OptionFlag{"link_shared_by", "--link-shared-by"},
    OptionFlag{"memory_bytes", "--memory", FlagValue::kSize},
    OptionFlag{"model.batch", "--batch"},
    OptionFlag{"model.classes", "--classes"},
    OptionFlag{"model.input", "--input"},
    OptionFlag{"network_bytes_per_second", "--network-gbytes-per-s", FlagValue::kBillions},
    OptionFlag{"op", "--op"},
    OptionFlag{"overhead", "--overhead"},
    OptionFlag{"peers", "--peers"},
    OptionFlag{"points", "--points"},
    OptionFlag{"policies", "--policy"},
    OptionFlag{"policy", "--policy"},
    OptionFlag{"precisions", "--precision"},
    OptionFlag{"profile", "--profile"},
    OptionFlag{"steps", "--steps"},
    OptionFlag{"tf32", "--tf32, or --precision tf32", FlagValue::kNone},
    OptionFlag{"threads", "--threads"},
    OptionFlag{"to_bytes", "--to", FlagValue::kSize},
    OptionFlag{"training.micro_steps", "--accumulate"},
    OptionFlag{"training.precision.storage", "--precision"},
    OptionFlag{"training.ranks", "--devices and --machines"},
    OptionFlag{"value", "--value"}};

std::string in_flag(const OptionSetting& setting) {
  const auto* const found = std::ranges::find(kFlags, setting.option, &OptionFlag::option);
  if (found == kFlags.end()) {
    return to_string(setting);
  }
  std::string text(found->flag);
  if (setting.value.empty() || found->value == FlagValue::kNone) {
    return text;
  }
  text += ' ';
  switch (found->value) {
    case FlagValue::kSize:
      text += setting.value == "0" ? "0" : exact_size(std::stoull(setting.value));
      break;
    case FlagValue::kBillions:
      text += std::to_string(std::stod(setting.value) / 1e9);
      break;
    case FlagValue::kAsIs:
    case FlagValue::kNone:
      text += setting.value;
      break;
  }
  return text;
}

}  // namespace

std::string in_flags(std::span<const OptionSetting> settings) {
  std::string text;
  for (const OptionSetting& setting : settings) {
    text += (text.empty() ? "" : " ") + in_flag(setting);
  }
  return text;
}

std::string in_flags(const InvalidOption& error) {
  return in_flags(error.settings()) + ": " + error.reason();
}

std::string in_flags(const UnsuitableOptions& error) {
  return error.problem() + "; use " + in_flags(error.suitable());
}

std::string in_flags(const BudgetShortage& shortage) {
  return shortage.text([](std::span<const OptionSetting> settings) { return in_flags(settings); });
}

}  // namespace vdnn
