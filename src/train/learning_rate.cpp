#include "vdnn/learning_rate.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <numbers>
#include <sstream>
#include <vector>

#include "vdnn/error.h"
#include "vdnn/size.h"

namespace vdnn {

namespace {

constexpr std::string_view kWarmup = "warmup:";
constexpr double kDefaultFactor = 0.1;

[[noreturn]] void reject(std::string_view part) {
  throw InvalidArgument(
      "'" + std::string(part) +
      "' is not a learning rate schedule or part of one: write constant, step:EVERY[:FACTOR] or "
      "cosine[:FINAL_FRACTION], optionally followed by ,warmup:STEPS; EVERY and STEPS from 1 on, "
      "in steps (500) or epochs (30e); FACTOR above 0 and up to 1; FINAL_FRACTION from 0 to 1");
}

// Parses all of `text` or rejects it.
template <class Number>
Number parse_number(std::string_view text) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) {
    reject(text);
  }
  return number;
}

std::uint64_t parse_steps(std::string_view text, std::uint64_t steps_per_epoch) {
  const bool epochs = text.ends_with('e');
  const auto count = parse_number<std::uint64_t>(epochs ? text.substr(0, text.size() - 1) : text);
  if (count == 0) {
    reject(text);
  }
  if (epochs && steps_per_epoch == 0) {
    throw InvalidArgument("learning rate schedule: '" + std::string(text) +
                          "' counts in epochs, but the number of steps per epoch is unknown");
  }
  return epochs ? checked_multiply(count, steps_per_epoch) : count;
}

// Parses a number from 0 to 1. The comparison also rejects a NaN.
double parse_fraction(std::string_view text) {
  const auto fraction = parse_number<double>(text);
  if (!(fraction >= 0 && fraction <= 1)) {
    reject(text);
  }
  return fraction;
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(separator, begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

}  // namespace

LearningRateSchedule::LearningRateSchedule(std::string_view text, const LearningRateRun& run)
    : total_steps_(run.total_steps) {
  set_base_rate(run.base_rate);
  const std::vector<std::string_view> parts = split(text, ',');
  set_shape(parts[0], run.steps_per_epoch);
  if (parts.size() == 2 && parts[1].starts_with(kWarmup)) {
    warmup_steps_ = parse_steps(parts[1].substr(kWarmup.size()), run.steps_per_epoch);
  } else if (parts.size() != 1) {
    reject(text);
  }
}

void LearningRateSchedule::set_base_rate(double rate) {
  constexpr float kLargest = std::numeric_limits<float>::max();
  if (!(rate >= 0 && rate <= static_cast<double>(kLargest))) {
    std::ostringstream message;
    message << "a learning rate of " << rate << ": it must be a number from 0 to " << kLargest;
    throw InvalidArgument(message.str());
  }
  base_rate_ = rate;
}

void LearningRateSchedule::set_shape(std::string_view text, std::uint64_t steps_per_epoch) {
  const std::vector<std::string_view> parts = split(text, ':');
  if (parts[0] == "constant" && parts.size() == 1) {
    shape_ = Shape::kConstant;
  } else if (parts[0] == "step" && (parts.size() == 2 || parts.size() == 3)) {
    shape_ = Shape::kStep;
    every_ = parse_steps(parts[1], steps_per_epoch);
    fraction_ = parts.size() == 3 ? parse_fraction(parts[2]) : kDefaultFactor;
    if (fraction_ == 0) {
      reject(text);
    }
  } else if (parts[0] == "cosine" && parts.size() <= 2) {
    shape_ = Shape::kCosine;
    fraction_ = parts.size() == 2 ? parse_fraction(parts[1]) : 0;
  } else {
    reject(text);
  }
}

double LearningRateSchedule::cosine(std::uint64_t step) const {
  const std::uint64_t steps = total_steps_ > warmup_steps_ ? total_steps_ - warmup_steps_ : 1;
  if (steps == 1) {
    return 1;  // the only step after the warm-up uses the base rate, at which the warm-up ends
  }
  const double progress = static_cast<double>(std::min(step, steps - 1)) / static_cast<double>(steps - 1);
  // std::lerp is exact at both ends.
  return std::lerp(fraction_, 1.0, 0.5 * (1 + std::cos(std::numbers::pi * progress)));
}

float LearningRateSchedule::rate(std::uint64_t step) const {
  if (step < warmup_steps_) {
    return static_cast<float>(base_rate_ *
                              (static_cast<double>(step + 1) / static_cast<double>(warmup_steps_)));
  }
  const std::uint64_t after_warmup = step - warmup_steps_;
  double factor = 1;
  if (shape_ == Shape::kStep) {
    const std::uint64_t falls = after_warmup / every_;
    factor = std::pow(fraction_, static_cast<double>(falls));
  } else if (shape_ == Shape::kCosine) {
    factor = cosine(after_warmup);
  }
  return static_cast<float>(base_rate_ * factor);
}

}  // namespace vdnn
