#pragma once
// Several processes that train together: who starts them, which device each has, and what they must agree on.

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "src/cli/options.h"
#include "vdnn/process_group.h"

namespace vdnn {

// Where the options want several devices and no launcher has started this process: runs mpirun, which starts
// this command once a device, and exits with its status. Else returns. Throws as run_launcher() does.
void start_ranks(const RunArguments& arguments);

// Of a process that has not been started as one of several: throws InvalidArgument where the options want
// others.
void require_alone(const RunArguments& arguments);

// The arguments of this rank: with the devices and machines that there are, and a device of its own. Throws
// InvalidArgument where these were to be others, or there are not enough.
RunArguments arguments_of_rank(const RunArguments& given, ProcessGroup& processes);

// Whether every rank is to train on a GPU, as far as the names of devices say ("auto" may be either). On
// every rank.
bool all_on_gpus(const std::string& device, ProcessGroup& processes);

// Throws InvalidArgument, which names rank and option, where a rank was started with other options than rank
// 0, or trains on another kind of device. On every rank.
void require_agreement(const nlohmann::ordered_json& options, const RunTarget& target,
                       ProcessGroup& processes);

// Whether the launcher's own standard output (or standard error) is a terminal. What isatty says of a rank's
// tells nothing: Open MPI gives its ranks one whatever its own is. False where the launcher is elsewhere.
bool launcher_has_terminal(int descriptor);

}  // namespace vdnn
