#pragma once
// Programs as ranks of mpirun's: the one place that knows what it takes in a test, where processors are few,
// the user may be root and containers forbid one process to read another's memory.

#include <cstdlib>
#include <string>

#include "src/base/environment.h"
#include "tests/process.h"

namespace vdnn::testing {

// "" where there is one.
inline std::string why_no_mpirun() {
  if (run_process("command -v mpirun").status != 0) {
    return "there is no mpirun";
  }
  const Outcome outcome = run_process("mpirun --version");
  return outcome.text.find("Open MPI") == std::string::npos ? "mpirun is not Open MPI's" : "";
}

// Of what this process starts.
inline void set_ranks_environment() {
  // MPI leaks, from components that it has unloaded by then, which no suppression can name.
  ::setenv("ASAN_OPTIONS", (environment("ASAN_OPTIONS").value_or("") + ":detect_leaks=0").c_str(), 1);
  ::setenv("OMPI_MCA_btl_vader_single_copy_mechanism", "none", 1);
}

// A command for run_process(): one that starts ranks. It ends with status 124 after `seconds`, with whatever
// it has started.
inline std::string in_ranks_environment(const std::string& command, int seconds = 300) {
  set_ranks_environment();
  return "timeout -k 10 " + std::to_string(seconds) + " " + command;
}

// Likewise: `program` as so many ranks.
inline std::string mpirun(int ranks, const std::string& program, int seconds = 300) {
  return in_ranks_environment("mpirun --allow-run-as-root --oversubscribe --bind-to none -np " +
                                  std::to_string(ranks) + " " + program,
                              seconds);
}

}  // namespace vdnn::testing
