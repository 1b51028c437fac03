#pragma once
// Several processes that train together: how they start, which device each uses, and on which options they
// must agree.

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "src/cli/options.h"
#include "vdnn/process_group.h"

namespace vdnn {

// If the options specify several devices, and no launcher has started this process, runs mpirun and exits
// with its status. mpirun starts this command once per device. Otherwise returns. Throws as run_launcher()
// does.
void start_ranks(const RunArguments& arguments);

// For a process that was not started as one of several: throws InvalidArgument if the options ask for
// several.
void require_alone(const RunArguments& arguments);

// The arguments of this rank, with the actual numbers of devices and machines and a device of its own. Throws
// InvalidArgument if the arguments specify other numbers, or there are not enough devices.
RunArguments arguments_of_rank(const RunArguments& given, ProcessGroup& processes);

// Whether every rank was given a GPU by name ("cuda:N"). False if a rank has "auto", even if that turns out
// to be a GPU. Call it on every rank.
bool all_on_gpus(const std::string& device, ProcessGroup& processes);

// Throws InvalidArgument, which names rank and option, if a rank was started with other options than rank 0,
// or trains on another kind of device. Call it on every rank.
void require_agreement(const nlohmann::ordered_json& options, const RunTarget& target,
                       ProcessGroup& processes);

// Whether the launcher's own standard output (or standard error) is a terminal. isatty() on a rank cannot
// show this, since Open MPI always gives its ranks a terminal. False if the launcher is on another machine.
bool launcher_has_terminal(int descriptor);

}  // namespace vdnn
