#pragma once
// The vdnn command run as a process, in a directory of the test's own.

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

  // `before` is put in front of the command, in the same shell.
  CommandOutcome run(const std::string& arguments, const std::string& before = "") const {
    const Outcome process =
        run_process("(" + before + VDNN_COMMAND + " " + arguments + " 2>" + path("standard-error") + ")");
    return {.status = process.status, .out = process.text, .log = read("standard-error")};
  }
};

}  // namespace vdnn::testing
