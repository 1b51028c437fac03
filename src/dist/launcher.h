#pragma once
// The environment variables by which a launcher of MPI programs is recognised.

#include <functional>
#include <optional>
#include <string>

namespace vdnn {

struct Launcher {
  std::string name;          // the name in messages
  std::optional<int> ranks;  // how many ranks the launcher has started; empty if it does not report that
};

// Returns the value of an environment variable, as environment() does (src/base/environment.h).
using EnvironmentReader = std::function<std::optional<std::string>(const char* name)>;

// Recognises Open MPI's mpirun, and launchers with PMI-1 or PMI-2 (MPICH's mpiexec, `srun --mpi=pmi2`) or
// PMIx (`srun --mpi=pmix`). Returns nothing if no launcher is recognised. Throws InvalidArgument if srun has
// started several processes without PMI or PMIx, since each process would run as the only rank.
std::optional<Launcher> find_launcher(const EnvironmentReader& read);

}  // namespace vdnn
