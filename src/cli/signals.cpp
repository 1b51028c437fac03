#include "src/cli/signals.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <ctime>

namespace vdnn {

namespace {

// Signal handlers may use only lock-free atomics.
std::atomic<int> ending_signal{0};
std::atomic<std::int64_t> ending_milliseconds{0};
std::atomic<bool> save_wanted{false};
std::atomic<bool> end_wanted{false};
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<std::int64_t>::is_always_lock_free &&
              std::atomic<bool>::is_always_lock_free);

// One request may arrive as two signals: timeout(1) sends its signal to the process and, at the same time, to
// the process's group.
constexpr std::int64_t kSameRequestMilliseconds = 500;

std::int64_t now_milliseconds() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return std::int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1'000'000;
}

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

// A signal handler. Two signals that arrive together may both be in this handler at once, on one thread or on
// two. The first signal is the request to end. The same signal again within kSameRequestMilliseconds is
// ignored. Any other signal gets its default action, which ends the process.
void SignalRequests::end_later(int signal) {
  const std::int64_t now = now_milliseconds();
  int before = 0;
  if (ending_signal.compare_exchange_strong(before, signal)) {
    ending_milliseconds = now;
    end_wanted = true;
    return;
  }
  // 0 if the call for the first signal has not stored the time yet.
  const std::int64_t first = ending_milliseconds;
  if (signal == before && (first == 0 || now - first < kSameRequestMilliseconds)) {
    return;
  }
  set_handler(signal, SIG_DFL);
  raise(signal);  // blocked until this handler returns
}

SignalRequests::SignalRequests() {
  ending_signal = 0;
  ending_milliseconds = 0;
  end_wanted = false;
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
