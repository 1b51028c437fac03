#pragma once
// Runs another program as a user does: a process with an exit status and output.

#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <string>

namespace vdnn::testing {

struct Outcome {
  int status = -1;
  std::string text;  // standard output and standard error
};

// Runs `command` in the shell.
inline Outcome run_process(const std::string& command) {
  Outcome outcome;
  FILE* pipe = popen((command + " 2>&1 </dev/null").c_str(), "r");
  if (pipe == nullptr) {
    outcome.text = "cannot run " + command;
    return outcome;
  }
  std::array<char, 4096> buffer{};
  while (const std::size_t bytes = fread(buffer.data(), 1, buffer.size(), pipe)) {
    outcome.text.append(buffer.data(), bytes);
  }
  const int status = pclose(pipe);
  outcome.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return outcome;
}

}  // namespace vdnn::testing
