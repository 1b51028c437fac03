#pragma once
// Runs programs as ranks of mpirun. Its options permit more ranks than processors, the user root, and
// containers in which processes cannot read each other's memory.

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>

#include "src/base/environment.h"
#include "tests/process.h"

namespace vdnn::testing {

// Returns the reason why there is no mpirun; empty if there is one.
inline std::string why_no_mpirun() {
  if (run_process("command -v mpirun").status != 0) {
    return "there is no mpirun";
  }
  const Outcome outcome = run_process("mpirun --version");
  return outcome.text.find("Open MPI") == std::string::npos ? "mpirun is not Open MPI's" : "";
}

// Open MPI keeps the files of its runs in one directory per host and user. Two runs that begin at the same
// time may both try to make it, and one of them then fails. So each test process has its own directory, which
// it removes at its end.
class MpiFiles {
 public:
  MpiFiles() : path_(std::filesystem::temp_directory_path() / ("vdnn-mpi-" + std::to_string(::getpid()))) {
    std::filesystem::create_directories(path_);
  }
  ~MpiFiles() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  MpiFiles(const MpiFiles&) = delete;
  MpiFiles& operator=(const MpiFiles&) = delete;

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

// Sets the environment of the processes that this process starts.
inline void set_ranks_environment() {
  static const MpiFiles files;
  ::setenv("OMPI_MCA_orte_tmpdir_base", files.path().c_str(), 1);
  // MPI leaks memory from components that are unloaded when leaks are reported, so no suppression can name
  // them.
  ::setenv("ASAN_OPTIONS", (environment("ASAN_OPTIONS").value_or("") + ":detect_leaks=0").c_str(), 1);
  ::setenv("OMPI_MCA_btl_vader_single_copy_mechanism", "none", 1);
}

// Returns a command for run_process() that starts ranks. It ends after `seconds` with status 124, together
// with all its processes.
inline std::string in_ranks_environment(const std::string& command, int seconds = 300) {
  set_ranks_environment();
  return "timeout -k 10 " + std::to_string(seconds) + " " + command;
}

// Returns a command like in_ranks_environment() that starts `program` with `ranks` ranks.
inline std::string mpirun(int ranks, const std::string& program, int seconds = 300) {
  return in_ranks_environment("mpirun --allow-run-as-root --oversubscribe --bind-to none -np " +
                                  std::to_string(ranks) + " " + program,
                              seconds);
}

}  // namespace vdnn::testing
