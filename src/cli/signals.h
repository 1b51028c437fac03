#pragma once
// Signals that ask a training for something: SIGINT and SIGTERM to end when the step is done and saved,
// SIGUSR1 to save and go on, as schedulers send it before they take a machine away. A second one that asks
// for the end ends the process at once. SIGUSR2 is how a launcher hands SIGINT or SIGTERM on to ranks
// (launcher_process.h).

#include <optional>
#include <string>

#include "vdnn/error.h"
#include "vdnn/trainer.h"

namespace vdnn {

// From its construction to its destruction these signals are requests. One at a time in a process.
class SignalRequests {
 public:
  SignalRequests();
  ~SignalRequests();
  SignalRequests(const SignalRequests&) = delete;
  SignalRequests& operator=(const SignalRequests&) = delete;

  // What has been asked for since the last call. On any thread.
  static TrainingRequest take();
  // The signal that asked for the end; nothing: none has.
  static std::optional<int> ended_by();
};

// A run that a signal has ended, after everything was written. Where another rank was told, SIGTERM.
class Interrupted : public Error {
 public:
  Interrupted(const std::string& what, int signal) : Error(what), signal_(signal) {}
  int signal() const { return signal_; }

 private:
  int signal_;
};

}  // namespace vdnn
