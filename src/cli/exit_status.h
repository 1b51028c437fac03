#pragma once
// The command's exit statuses.

#include <functional>
#include <span>
#include <string>
#include <string_view>

namespace vdnn {

inline constexpr int kExitUsage = 2;
inline constexpr int kExitDoesNotFit = 3;
inline constexpr int kExitDevice = 4;
inline constexpr int kExitDiverged = 5;
inline constexpr int kExitSignal = 128;  // plus the signal's number, as in shells

struct ExitStatus {
  int status = 0;
  std::string_view meaning;
};
// All statuses in ascending order.
std::span<const ExitStatus> exit_statuses();

// The status and text for an exception that is being handled.
struct Failure {
  int status = 0;
  std::string text;
};
Failure current_failure();

// Runs `command`; an exception becomes an exit status and one line in the log.
int exit_status_of(const std::function<void()>& command);

}  // namespace vdnn
