#pragma once
// Errors about options. Their texts name the library's own options. The errors also contain the parts of
// their texts as data. So a program with other names for options, for example flags, can compose the text
// with its own names.

#include <span>
#include <string>
#include <vector>

#include "vdnn/error.h"

namespace vdnn {

// An option of this library with a value, for messages: {"training.micro_steps", "2"}. `option` is the
// member's path in the struct that is passed. `value` is empty where only the option matters; bytes are plain
// numbers.
struct OptionSetting {
  std::string option;
  std::string value;
};
// "training.micro_steps = 2"
std::string to_string(const OptionSetting& setting);
// "model.batch = 32, training.micro_steps = 2"
std::string to_string(std::span<const OptionSetting> settings);

// An option, or several together, with impossible values. The text names the option as the library does;
// programs with names of their own for options compose another text from the parts.
class InvalidOption : public InvalidArgument {
 public:
  InvalidOption(std::vector<OptionSetting> settings, std::string reason);
  const std::vector<OptionSetting>& settings() const { return settings_; }
  const std::string& reason() const { return reason_; }

 private:
  std::vector<OptionSetting> settings_;
  std::string reason_;
};

// The options do not suit the data. The error contains settings that suit them. Its text ends with these:
// "PROBLEM; use model.classes = 10". Other programs compose another text from the parts.
class UnsuitableOptions : public InvalidArgument {
 public:
  UnsuitableOptions(std::string problem, std::vector<OptionSetting> suitable);
  const std::string& problem() const { return problem_; }
  const std::vector<OptionSetting>& suitable() const { return suitable_; }

 private:
  std::string problem_;
  std::vector<OptionSetting> suitable_;
};

}  // namespace vdnn
