#pragma once
// Turns the options in the library's messages into flags, for users of the command.

#include <span>
#include <string>

#include "vdnn/option_error.h"
#include "vdnn/planned_run.h"

namespace vdnn {

// "--batch 32 --accumulate 2". An option without a flag keeps its name in the library.
std::string in_flags(std::span<const OptionSetting> settings);
std::string in_flags(const InvalidOption& error);
std::string in_flags(const UnsuitableOptions& error);
std::string in_flags(const BudgetShortage& shortage);

}  // namespace vdnn
