#pragma once
// Messages between processes through MPI.

#include <memory>

#include "src/dist/launcher.h"
#include "src/dist/transport.h"

namespace vdnn {

// Joins the world that `launcher` has started. Throws DeviceError if other ranks do not start within
// `start_seconds` or MPI lacks a required feature. Throws InvalidArgument if MPI sees another number of ranks
// than the launcher has started, or if this program has no MPI. Call it at most once per process, since MPI
// cannot be started again.
std::shared_ptr<Transport> make_mpi_transport(const Launcher& launcher, double start_seconds);

}  // namespace vdnn
