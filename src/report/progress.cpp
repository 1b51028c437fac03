#include "vdnn/progress.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <limits>
#include <ostream>
#include <string>
#include <utility>

#include "vdnn/size.h"

namespace vdnn {

namespace {

constexpr double kSecondsBetweenDraws = 0.1;
constexpr std::size_t kBarWidth = 12;

double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double fraction(std::uint64_t part, std::uint64_t whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

std::string number(const char* format, double value) {
  if (std::isnan(value)) {
    return "nan";  // without its sign, which means nothing
  }
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), format, value);
  return text.data();
}

std::string percent(double value) {
  return number("%.0f%%", value * 100);
}

// `24.5 MiB`: a bar has no room for the exact number of bytes behind it.
std::string brief_size(std::uint64_t bytes) {
  const std::string text = format_size(bytes);
  return text.substr(0, text.find(" ("));
}

std::string bar(double done) {
  const auto filled = static_cast<std::size_t>(std::clamp(done, 0.0, 1.0) * kBarWidth);
  return "[" + std::string(filled, '=') + std::string(kBarWidth - filled, ' ') + "]";
}

std::string stall(const TrainingProgress& p) {
  return p.stall_fraction ? "  stall " + percent(*p.stall_fraction) : "";
}

std::string describe(const TrainingProgress& p) {
  return "epoch " + std::to_string(p.epoch) + "/" + std::to_string(p.epochs) + "  step " +
         std::to_string(p.step) + "/" + std::to_string(p.steps) + "  loss " + number("%.4f", p.loss) + "  " +
         number("%.0f", p.images_per_second) + " images/s  memory " + brief_size(p.memory_bytes) + " of " +
         brief_size(p.budget_bytes) + " (" + percent(fraction(p.memory_bytes, p.budget_bytes)) + ")" +
         stall(p);
}

std::string brief(const TrainingProgress& p) {
  const std::string text = bar(fraction(p.step, p.steps)) + " " + percent(fraction(p.step, p.steps)) +
                           "  loss " + number("%.3f", p.loss) + "  " + number("%.0f", p.images_per_second) +
                           " img/s  " + brief_size(p.memory_bytes) + " of " + brief_size(p.budget_bytes) +
                           stall(p);
  return text.substr(0, 79);
}

}  // namespace

ProgressBar::ProgressBar(std::ostream& out, bool terminal, std::function<double()> now_seconds)
    : out_(out),
      terminal_(terminal),
      now_seconds_(now_seconds ? std::move(now_seconds) : steady_seconds),
      next_draw_seconds_(-std::numeric_limits<double>::infinity()) {}

void ProgressBar::update(const TrainingProgress& progress) {
  progress_ = progress;
  line_open_ = true;
  if (progress.step == progress.steps) {
    finish();
  } else if (terminal_ && now_seconds_() >= next_draw_seconds_) {
    next_draw_seconds_ = now_seconds_() + kSecondsBetweenDraws;
    draw(false);
  }
}

void ProgressBar::finish() {
  if (line_open_) {
    draw(true);
    line_open_ = false;
  }
}

void ProgressBar::draw(bool last) {
  constexpr const char* kBackAndClear = "\r\x1b[K";
  if (terminal_) {
    out_ << kBackAndClear;
  }
  // While it is redrawn it has to stay in one row of 80 columns: what has wrapped cannot be cleared.
  out_ << (terminal_ && !last ? brief(progress_) : describe(progress_)) << (last ? "\n" : "") << std::flush;
}

}  // namespace vdnn
