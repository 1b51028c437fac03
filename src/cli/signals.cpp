#include "src/cli/signals.h"

#include <array>
#include <atomic>
#include <csignal>

namespace vdnn {

namespace {

constexpr std::array kEnding{SIGINT, SIGTERM, SIGUSR2};

// Handlers may touch lock-free atomics alone.
std::atomic<int> ending_signal{0};
std::atomic<bool> save_wanted{false};
std::atomic<bool> end_wanted{false};
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<bool>::is_always_lock_free);

void set_handler(int signal, void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  sigaction(signal, &action, nullptr);
}

void end_later(int signal) {
  ending_signal = signal;
  end_wanted = true;
  for (const int each : kEnding) {
    set_handler(each, SIG_DFL);
  }
}

void save_soon(int /*signal*/) {
  save_wanted = true;
}

}  // namespace

SignalRequests::SignalRequests() {
  for (const int each : kEnding) {
    set_handler(each, end_later);
  }
  set_handler(SIGUSR1, save_soon);
}

SignalRequests::~SignalRequests() {
  for (const int each : kEnding) {
    set_handler(each, SIG_DFL);
  }
  set_handler(SIGUSR1, SIG_DFL);
}

TrainingRequest SignalRequests::take() {
  if (end_wanted.exchange(false)) {
    return TrainingRequest::kStop;
  }
  return save_wanted.exchange(false) ? TrainingRequest::kSave : TrainingRequest::kNothing;
}

std::optional<int> SignalRequests::ended_by() {
  const int signal = ending_signal;
  if (signal == 0) {
    return std::nullopt;
  }
  return signal == SIGUSR2 ? SIGTERM : signal;
}

}  // namespace vdnn
