#include "src/cli/option_types.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <utility>

#include "src/cli/options.h"
#include "vdnn/sim_device.h"
#include "vdnn/zoo.h"

namespace vdnn {

namespace {

using NameAndType = std::pair<std::string_view, std::string_view>;

// Types by option, without its dashes, or by positional argument.
constexpr std::array kTypes{NameAndType{"model", "MODEL"},         NameAndType{"device", "DEVICE"},
                            NameAndType{"policy", "POLICY"},       NameAndType{"algorithms", "PREFERENCE"},
                            NameAndType{"precision", "PRECISION"}, NameAndType{"optimizer", "OPTIMIZER"},
                            NameAndType{"data", "DATA"},           NameAndType{"publication", "PUBLICATION"},
                            NameAndType{"shell", "SHELL"},         NameAndType{"memory", kSizeType},
                            NameAndType{"host-memory", kSizeType}, NameAndType{"workspace-limit", kSizeType},
                            NameAndType{"bucket", kSizeType},      NameAndType{"host-cache", kSizeType},
                            NameAndType{"from", kSizeType},        NameAndType{"to", kSizeType},
                            NameAndType{"json", kOutputType},      NameAndType{"trace", kOutputType},
                            NameAndType{"schedule", kOutputType},  NameAndType{"report", kOutputType},
                            NameAndType{"svg", kOutputType},       NameAndType{"engine-timings", kFileType},
                            NameAndType{"profile", kFileType},     NameAndType{"step", kFileType},
                            NameAndType{"resume", kFileType},      NameAndType{"save", kFileType},
                            NameAndType{"learned", kFileType},     NameAndType{"output", kFileType},
                            NameAndType{"file", kFileType},        NameAndType{"man", "FOLDER"},
                            NameAndType{"tensorboard", "FOLDER"}};

// Empty: CLI11 names the type after the variable's type.
std::string_view type_of_name(const CLI::Option& option) {
  for (const auto& [name, type] : kTypes) {
    if (option.check_lname(std::string(name)) || option.get_name(true) == name) {
      return type;
    }
  }
  return "";
}

bool takes_a_value(const CLI::Option& option) {
  return option.get_items_expected_max() > 0;
}

std::string standard_output_for_dash(std::string& path) {
  if (path == "-") {
    path = "/dev/stdout";
  }
  return "";
}

void set_type(CLI::Option& option) {
  const std::string_view type = type_of_name(option);
  if (type.empty() || !takes_a_value(option)) {
    return;
  }
  option.type_name(std::string(type));
  if (type == kOutputType) {
    option.transform(CLI::Validator(standard_output_for_dash, ""));
  }
}

std::vector<std::string> device_names() {
  std::vector<std::string> names{"auto", "cpu", "cuda:0"};
  for (const std::string& name : sim_profile_names()) {
    names.push_back("sim:" + name);
  }
  return names;
}

}  // namespace

void set_option_types(CLI::App& app) {
  for (CLI::App* command : app.get_subcommands({})) {
    for (CLI::Option* option : command->get_options()) {
      set_type(*option);
    }
  }
}

std::string type_of(const CLI::Option& option) {
  const std::string type = takes_a_value(option) ? option.get_type_name() : "";
  return type.substr(0, type.find(':'));
}

std::vector<std::string> values_of_type(std::string_view type) {
  if (type == "MODEL") {
    return model_names();
  }
  if (type == "DEVICE") {
    return device_names();
  }
  if (type == "POLICY") {
    return policy_names();
  }
  if (type == "PREFERENCE") {
    return {"performance", "memory"};
  }
  if (type == "PRECISION") {
    return precision_names();
  }
  if (type == "OPTIMIZER") {
    return {"sgd", "adam", "adamw"};
  }
  if (type == "DATA") {
    return {"fashion-mnist", "cifar10:", "images:", "synthetic"};
  }
  if (type == "PUBLICATION") {
    return {"vdnn2016"};
  }
  if (type == "SHELL") {
    return {"bash", "zsh", "fish"};
  }
  return {};
}

}  // namespace vdnn
