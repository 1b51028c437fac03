#pragma once
// What the command's exit status says: 0 done; 1 anything else; 2 bad usage or input; 3 does not fit; 4
// device failure; 5 the training has diverged; 130 and 143 ended by SIGINT or SIGTERM, after saving.

#include <functional>
#include <string>

namespace vdnn {

inline constexpr int kExitUsage = 2;

// Of what is being handled.
struct Failure {
  int status = 0;
  std::string text;
};
Failure current_failure();

// Runs `command`; an exception becomes an exit status and one line in the log.
int exit_status_of(const std::function<void()>& command);

}  // namespace vdnn
