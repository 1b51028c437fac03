#pragma once
// A launcher, as mpirun, as a child of this process that is not left behind.

#include <string>
#include <vector>

namespace vdnn {

// Runs it and waits for its end; its exit status, or 128 and the signal that ended it, as a shell has it, or
// that asked this process to end: unless the launcher's status is that of a failure that the command names
// (exit_status.h), or 0. Such signals are handed on, once, and the launcher is asked to end with this
// process, however that ends. Where it shares no terminal with this process, a first SIGINT or SIGTERM is
// handed on as SIGUSR2 (signals.h), and a second one as itself. SIGUSR1 is handed on, too, at the earliest
// when ranks have had the time to install their handlers. Signals that this process ignores are not handed
// on.
//
// Throws InvalidArgument where it cannot be run, and DeviceError where all processes that it had started have
// ended and it has not for ten seconds: Open MPI's does that where one dies while it connects. It is ended,
// then.
int run_launcher(std::vector<std::string> command);

}  // namespace vdnn
