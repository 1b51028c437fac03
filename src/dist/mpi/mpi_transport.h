#pragma once
// Messages between processes through MPI.

#include <memory>

#include "src/dist/launcher.h"
#include "src/dist/transport.h"

namespace vdnn {

// Joins the world that `launcher` has started. Throws DeviceError where other ranks do not start in so many
// seconds or MPI is not what is needed, InvalidArgument where MPI sees another number of ranks than the
// launcher has started, or this build has no MPI. Once a process: MPI cannot be started again.
std::shared_ptr<Transport> make_mpi_transport(const Launcher& launcher, double start_seconds);

}  // namespace vdnn
