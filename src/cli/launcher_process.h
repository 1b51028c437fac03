#pragma once
// A launcher, as mpirun, as a child of this process that is not left behind.

#include <string>
#include <vector>

namespace vdnn {

// Runs it and waits for its end; its exit status, or 128 and the signal that ended it, as a shell has it.
// Signals that ask this process to end are handed on, once, and the launcher is asked to end with it, however
// that ends. Throws InvalidArgument where it cannot be run, and DeviceError where all processes that it had
// started have ended and it has not for ten seconds: Open MPI's does that where one dies while it connects.
// It is ended, then.
int run_launcher(std::vector<std::string> command);

}  // namespace vdnn
