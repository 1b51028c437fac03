#include "src/dist/mpi/mpi_transport.h"
#include "vdnn/error.h"

namespace vdnn {

std::shared_ptr<Transport> make_mpi_transport(const Launcher& launcher, double) {
  throw InvalidArgument(
      launcher.name + " has started " + (launcher.ranks ? std::to_string(*launcher.ranks) : "several") +
      " ranks, but this program has no MPI: build vdnn where MPI's headers are (on Debian, package "
      "libopenmpi-dev), or link its component mpi");
}

}  // namespace vdnn
