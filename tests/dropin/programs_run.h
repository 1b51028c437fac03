#pragma once
// Runs a program of tests/dropin/programs as a process on the stand-in for CUDA, and reads the stand-in's
// report.

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "tests/process.h"

namespace vdnn::testing {

struct ProgramRun {
  Outcome outcome;
  std::map<std::string, std::uint64_t> calls;  // counts by name
  std::vector<std::string> failed;             // calls that the stand-in made fail
  std::vector<std::string> wrong;              // leaks, misuses, races
  std::uint64_t all_calls = 0;
};

inline void read_report(const std::filesystem::path& path, ProgramRun& run) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string kind;
    std::string name;
    words >> kind;
    if (kind == "call") {
      std::uint64_t count = 0;
      words >> name >> count;
      run.calls[name] = count;
      run.all_calls += count;
    } else if (kind == "failed") {
      words >> name;
      run.failed.push_back(name);
    } else {
      run.wrong.push_back(line);
    }
  }
}

// `environment` has the form "NAME=value ...", for the stand-in and the preloaded library.
inline ProgramRun run_program(const std::string& program, const std::string& environment,
                              const std::filesystem::path& directory) {
  const std::filesystem::path report = directory / "report";
  std::filesystem::remove(report);
  ProgramRun run;
  run.outcome = run_process("VDNN_STAND_IN_REPORT=" + report.string() + " " + environment + " " +
                            VDNN_PROGRAMS + "/" + program);
  EXPECT_TRUE(std::filesystem::exists(report)) << program << " did not end normally: " << run.outcome.text;
  read_report(report, run);
  return run;
}

}  // namespace vdnn::testing
