#include "src/cli/signals.h"

#include <atomic>
#include <cstddef>

namespace vdnn {

namespace {

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

void save_soon(int /*signal*/) {
  save_wanted = true;
}

}  // namespace

void hear_save_requests() {
  set_handler(SIGUSR1, save_soon);
}

// A handler: the next signal of those that are not ignored ends the process.
void SignalRequests::end_later(int signal) {
  ending_signal = signal;
  end_wanted = true;
  for (const int each : kEnding) {
    Disposition now{};
    sigaction(each, nullptr, &now);
    if (now.sa_handler == end_later) {
      set_handler(each, SIG_DFL);
    }
  }
}

SignalRequests::SignalRequests() {
  for (std::size_t i = 0; i < kEnding.size(); ++i) {
    sigaction(kEnding[i], nullptr, &before_[i]);
    if (before_[i].sa_handler != SIG_IGN) {
      set_handler(kEnding[i], end_later);
    }
  }
}

SignalRequests::~SignalRequests() {
  for (std::size_t i = 0; i < kEnding.size(); ++i) {
    sigaction(kEnding[i], &before_[i], nullptr);
  }
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
