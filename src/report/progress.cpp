#include "vdnn/progress.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <limits>
#include <ostream>
#include <string>

#include "vdnn/error.h"
#include "vdnn/size.h"

namespace vdnn {

namespace {

constexpr double kSecondsBetweenDraws = 0.1;
constexpr std::size_t kBarWidth = 8;

double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double fraction(std::uint64_t part, std::uint64_t whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

std::string number(const char* format, double value) {
  if (std::isnan(value)) {
    return "nan";  // without its sign, which has no meaning
  }
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), format, value);
  return text.data();
}

std::string percent(double value) {
  return number("%.0f%%", value * 100);
}

std::string bar(double done) {
  const auto filled = static_cast<std::size_t>(std::clamp(done, 0.0, 1.0) * kBarWidth);
  return "[" + std::string(filled, '=') + std::string(kBarWidth - filled, ' ') + "]";
}

std::string stall(const TrainingProgress& p) {
  return p.stall_fraction ? "  stall " + percent(*p.stall_fraction) : "";
}

std::string loss_scale(const TrainingProgress& p) {
  return p.loss_scale
             ? "  scale " + number("%g", *p.loss_scale) + " (" + std::to_string(p.skipped_steps) + " skipped)"
             : "";
}

// `  ETA 1:02:05`: hours, minutes and seconds.
std::string eta(const std::optional<double>& seconds_left) {
  if (!seconds_left) {
    return "";
  }
  const auto seconds = static_cast<std::uint64_t>(std::llround(*seconds_left));
  const auto two_digits = [](std::uint64_t value) { return number("%02.0f", static_cast<double>(value)); };
  return "  ETA " + std::to_string(seconds / 3600) + ":" + two_digits(seconds / 60 % 60) + ":" +
         two_digits(seconds % 60);
}

std::string share_of_budget(const TrainingProgress& p) {
  return "(" + percent(fraction(p.memory_bytes, p.budget_bytes)) + ")";
}

std::string describe(const TrainingProgress& p, const std::optional<double>& seconds_left) {
  return "epoch " + std::to_string(p.epoch) + "/" + std::to_string(p.epochs) + "  step " +
         std::to_string(p.step) + "/" + std::to_string(p.steps) + "  loss " + number("%.4f", p.loss) + "  " +
         number("%.0f", p.images_per_second) + " images/s  memory " + format_rounded_size(p.memory_bytes) +
         " of " + format_rounded_size(p.budget_bytes) + " " + share_of_budget(p) + stall(p) + loss_scale(p) +
         eta(seconds_left);
}

std::string brief(const TrainingProgress& p, const std::optional<double>& seconds_left) {
  const std::string text = bar(fraction(p.step, p.steps)) + " " + percent(fraction(p.step, p.steps)) +
                           eta(seconds_left) + "  loss " + number("%.3f", p.loss) + "  " +
                           number("%.0f", p.images_per_second) + " img/s  " +
                           format_rounded_size(p.memory_bytes) + " " + share_of_budget(p) + stall(p);
  return text.substr(0, 79);
}

double seconds_between_draws(const ProgressOptions& options) {
  if (!(options.seconds_between_lines >= 0)) {
    throw InvalidArgument("seconds_between_lines is " + number("%g", options.seconds_between_lines) +
                          ": it must be at least 0");
  }
  if (options.terminal) {
    return kSecondsBetweenDraws;
  }
  return options.seconds_between_lines > 0 ? options.seconds_between_lines
                                           : std::numeric_limits<double>::infinity();
}

}  // namespace

ProgressBar::ProgressBar(std::ostream& out, const ProgressOptions& options)
    : out_(out),
      terminal_(options.terminal),
      seconds_between_draws_(seconds_between_draws(options)),
      now_seconds_(options.now_seconds ? options.now_seconds : steady_seconds),
      next_draw_seconds_(terminal_ ? -std::numeric_limits<double>::infinity()
                                   : now_seconds_() + seconds_between_draws_) {}

void ProgressBar::update(const TrainingProgress& progress) {
  progress_ = progress;
  line_open_ = true;
  last_update_seconds_ = now_seconds_();
  if (updates_++ == 0) {
    first_update_seconds_ = last_update_seconds_;
  }
  const bool epoch_ends = progress.step == progress.steps;
  if (!epoch_ends && last_update_seconds_ < next_draw_seconds_) {
    return;
  }
  if (terminal_ && !epoch_ends) {
    draw(false);
  } else {
    finish();
  }
}

void ProgressBar::finish() {
  if (line_open_) {
    draw(true);
    line_open_ = false;
  }
}

std::optional<double> ProgressBar::seconds_left() const {
  if (updates_ < 2 || progress_.steps_left == 0) {
    return std::nullopt;
  }
  return (last_update_seconds_ - first_update_seconds_) / static_cast<double>(updates_ - 1) *
         static_cast<double>(progress_.steps_left);
}

void ProgressBar::draw(bool last) {
  constexpr const char* kBackAndClear = "\r\x1b[K";
  next_draw_seconds_ = last_update_seconds_ + seconds_between_draws_;
  if (terminal_) {
    out_ << kBackAndClear;
  }
  // A bar that is redrawn must fit one row of 80 columns, since wrapped text cannot be cleared.
  out_ << (terminal_ && !last ? brief(progress_, seconds_left()) : describe(progress_, seconds_left()))
       << (last ? "\n" : "") << std::flush;
}

}  // namespace vdnn
