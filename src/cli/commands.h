#pragma once
// The commands. Each adds itself to the application; parsing its options runs nothing.

#include <functional>
#include <memory>
#include <ostream>
#include <string>

#include "src/cli/options.h"

namespace CLI {
class App;
}

namespace vdnn {

// The stream for people's text: standard error if an output is standard output.
std::ostream& people(const OutputArguments& outputs);

// The function to run if the command was chosen.
using Command = std::function<void()>;
Command add_completion_command(CLI::App& app);  // reads the whole application, so it is added last
Command add_devices_command(CLI::App& app);
Command add_explain_command(CLI::App& app);
Command add_manual_command(CLI::App& app);  // added last, too
Command add_models_command(CLI::App& app);
Command add_train_command(CLI::App& app);
Command add_max_batch_command(CLI::App& app);
Command add_plan_command(CLI::App& app);
Command add_profile_command(CLI::App& app);
Command add_replay_command(CLI::App& app);
Command add_reproduce_command(CLI::App& app);
Command add_run_command(CLI::App& app);
Command add_sweep_command(CLI::App& app);

}  // namespace vdnn
