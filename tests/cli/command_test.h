#pragma once
// Runs the vdnn command as a process, in the test's own directory.

#include <string>

#include "tests/process.h"
#include "tests/temporary_directory.h"

namespace vdnn::testing {

struct CommandOutcome {
  int status = -1;
  std::string out;
  std::string log;  // standard error
};

class CommandTest : public TemporaryDirectory {
 protected:
  std::string path(const std::string& name) const { return (directory_ / name).string(); }

  // The shell that runs the command runs `before` first.
  CommandOutcome run(const std::string& arguments, const std::string& before = "") const {
    const Outcome process =
        run_process("(" + before + VDNN_COMMAND + " " + arguments + " 2>" + path("standard-error") + ")");
    return {.status = process.status, .out = process.text, .log = read("standard-error")};
  }
};

}  // namespace vdnn::testing
