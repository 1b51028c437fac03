#pragma once
// The environment variables by which a launcher of MPI programs is recognised.

#include <functional>
#include <optional>
#include <string>

namespace vdnn {

struct Launcher {
  std::string name;          // in messages
  std::optional<int> ranks;  // number of ranks that it has started, if it reports that
};

// Reads a variable like environment() (src/base/environment.h).
using EnvironmentReader = std::function<std::optional<std::string>(const char* name)>;

// Recognises Open MPI's mpirun, and launchers with PMI-1 or PMI-2 (MPICH's mpiexec, `srun --mpi=pmi2`) or
// PMIx (`srun --mpi=pmix`). Returns nothing without a launcher. Throws InvalidArgument if srun has started
// several processes without any of these, since each would believe that it is alone.
std::optional<Launcher> find_launcher(const EnvironmentReader& read);

}  // namespace vdnn
