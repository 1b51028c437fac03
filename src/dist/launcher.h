#pragma once
// What a launcher of MPI programs leaves in the environment of those that it starts.

#include <functional>
#include <optional>
#include <string>

namespace vdnn {

struct Launcher {
  std::string name;          // in messages
  std::optional<int> ranks;  // how many it has started, where it says so
};

// As environment() (src/base/environment.h).
using EnvironmentReader = std::function<std::optional<std::string>(const char* name)>;

// Open MPI's mpirun; what speaks PMI-1 or PMI-2 (MPICH's mpiexec, `srun --mpi=pmi2`) or PMIx
// (`srun --mpi=pmix`). Absent: none. InvalidArgument where srun has started several processes without any of
// these: each would take itself for the only one.
std::optional<Launcher> find_launcher(const EnvironmentReader& read);

}  // namespace vdnn
