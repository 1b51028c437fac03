#include "src/dist/launcher.h"

#include <charconv>

#include "vdnn/error.h"

namespace vdnn {

namespace {

std::optional<int> read_count(const EnvironmentReader& read, const char* name) {
  const std::optional<std::string> text = read(name);
  if (!text) {
    return std::nullopt;
  }
  int count = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), count);
  if (error != std::errc() || end != text->data() + text->size() || count < 1) {
    throw InvalidArgument(std::string(name) + " is '" + *text +
                          "' in the environment: it must be a number of processes");
  }
  return count;
}

}  // namespace

std::optional<Launcher> find_launcher(const EnvironmentReader& read) {
  if (const auto ranks = read_count(read, "OMPI_COMM_WORLD_SIZE")) {
    return Launcher{.name = "mpirun (Open MPI)", .ranks = ranks};
  }
  // The number of tasks of the job step. SLURM_NTASKS would not do: it counts the tasks of the whole
  // allocation, and is set in a batch script, too.
  const std::optional<int> step_tasks = read_count(read, "SLURM_STEP_NUM_TASKS");
  if (const auto ranks = read_count(read, "PMI_SIZE")) {
    return Launcher{.name = step_tasks ? "srun (PMI)" : "mpiexec (PMI)", .ranks = ranks};
  }
  if (read("PMIX_RANK")) {
    return Launcher{.name = step_tasks ? "srun (PMIx)" : "a launcher that speaks PMIx", .ranks = step_tasks};
  }
  if (step_tasks && *step_tasks > 1) {
    throw InvalidArgument(
        "srun has started " + std::to_string(*step_tasks) +
        " processes that cannot find each other; start them by srun --mpi=pmix or --mpi=pmi2");
  }
  return std::nullopt;
}

}  // namespace vdnn
