#pragma once
// Runs a launcher, for example mpirun, as a child that never outlives this process.

#include <string>
#include <vector>

namespace vdnn {

// Runs the launcher, waits for its end and returns its exit status. As in shells, this is 128 plus the signal
// that ended the launcher. If a signal asked this process to end, it is 128 plus that signal, unless the
// launcher's status is 0 or a failure that the command names (exit_status.h).
//
// Signals that ask for the end are forwarded once. The launcher is also asked to end when this process ends
// for any reason. If launcher and process share no terminal, a first SIGINT or SIGTERM is forwarded as
// SIGUSR2 (signals.h), and a second one unchanged. SIGUSR1 is forwarded, too, but only after ranks have had
// time to install their handlers. Signals that this process ignores are not forwarded.
//
// Throws InvalidArgument if the launcher cannot be run. Throws DeviceError, after ending the launcher, if it
// still runs ten seconds after all of its processes have ended. Open MPI's launcher does that if a process
// dies while it connects.
int run_launcher(std::vector<std::string> command);

}  // namespace vdnn
