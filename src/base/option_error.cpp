#include "vdnn/option_error.h"

#include <utility>

namespace vdnn {

std::string to_string(const OptionSetting& setting) {
  return setting.value.empty() ? setting.option : setting.option + " = " + setting.value;
}

std::string to_string(std::span<const OptionSetting> settings) {
  std::string text;
  for (const OptionSetting& setting : settings) {
    text += (text.empty() ? "" : ", ") + to_string(setting);
  }
  return text;
}

UnsuitableOptions::UnsuitableOptions(std::string problem, std::vector<OptionSetting> suitable)
    : InvalidArgument(problem + "; use " + to_string(suitable)),
      problem_(std::move(problem)),
      suitable_(std::move(suitable)) {}

InvalidOption::InvalidOption(std::vector<OptionSetting> settings, std::string reason)
    : InvalidArgument(to_string(settings) + ": " + reason),
      settings_(std::move(settings)),
      reason_(std::move(reason)) {}

}  // namespace vdnn
