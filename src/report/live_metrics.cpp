#include "src/report/live_metrics.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string_view>

#include "vdnn/error.h"

namespace vdnn {

namespace {

std::string number(double value) {
  if (std::isnan(value)) {
    return "NaN";
  }
  if (std::isinf(value)) {
    return value > 0 ? "+Inf" : "-Inf";
  }
  std::array<char, 32> digits{};
  return {digits.data(), std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr};
}

std::string number(std::uint64_t value) {
  return std::to_string(value);
}

std::string label_value(std::string_view text) {
  std::string escaped;
  for (const char each : text) {
    if (each == '\n') {
      escaped += "\\n";
      continue;
    }
    if (each == '\\' || each == '"') {
      escaped += '\\';
    }
    escaped += each;
  }
  return escaped;
}

class PrometheusText {
 public:
  template <class Value>
  void gauge(std::string_view name, std::string_view help, const Value& value) {
    add(name, "gauge", help, "", number(value));
  }
  template <class Value>
  void gauge(std::string_view name, std::string_view help, const std::optional<Value>& value) {
    if (value) {
      gauge(name, help, *value);
    }
  }
  template <class Value>
  void counter(std::string_view name, std::string_view help, Value value) {
    add(name, "counter", help, "", number(value));
  }
  void add(std::string_view name, std::string_view type, std::string_view help, const std::string& labels,
           const std::string& value) {
    text_.append("# HELP ").append(name).append(" ").append(help).append("\n");
    text_.append("# TYPE ").append(name).append(" ").append(type).append("\n");
    text_.append(name).append(labels).append(" ").append(value).append("\n");
  }
  std::string take() { return std::move(text_); }

 private:
  std::string text_;
};

std::string info_labels(const TrainingMetrics& metrics) {
  return "{model=\"" + label_value(metrics.model) + "\",device=\"" + label_value(metrics.device) +
         "\",policy=\"" + label_value(metrics.policy) + "\"}";
}

nlohmann::ordered_json or_null(const std::optional<std::uint64_t>& value) {
  return value ? nlohmann::ordered_json(*value) : nlohmann::ordered_json();
}

nlohmann::ordered_json or_null(const std::optional<double>& value) {
  return value && std::isfinite(*value) ? nlohmann::ordered_json(*value) : nlohmann::ordered_json();
}

// NaN and infinities, which JSON lacks, become text; null means that the value was not measured.
nlohmann::ordered_json or_name(const std::optional<double>& value) {
  return value && !std::isfinite(*value) ? nlohmann::ordered_json(number(*value)) : or_null(value);
}

constexpr std::array kColumns{"step", "loss", "images_per_second", "stall_fraction", "memory_bytes"};

nlohmann::ordered_json to_row(const MetricsPoint& point) {
  return {point.step, or_null(point.loss), or_null(point.images_per_second), or_null(point.stall_fraction),
          or_null(point.memory_bytes)};
}

nlohmann::ordered_json to_pair(const MetricsRange& range) {
  return {or_null(range.least), or_null(range.greatest)};
}

nlohmann::ordered_json to_pairs(const MetricsHistory::Ranges& ranges) {
  return {{"loss", to_pair(ranges.loss)},
          {"images_per_second", to_pair(ranges.images_per_second)},
          {"stall_fraction", to_pair(ranges.stall_fraction)},
          {"memory_bytes", to_pair(ranges.memory_bytes)}};
}

MetricsPoint to_point(const TrainingMetrics& metrics) {
  return {.step = metrics.step,
          .loss = metrics.loss,
          .images_per_second = metrics.images_per_second,
          .stall_fraction = metrics.stall_fraction,
          .memory_bytes = metrics.memory_bytes};
}

// The rows of the history and of the last step, which the history may have dropped.
nlohmann::ordered_json to_rows(const MetricsHistory& history, const TrainingMetrics& latest) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const MetricsPoint& point : history.points()) {
    rows.push_back(to_row(point));
  }
  if (!history.points().empty() && history.points().back().step < latest.step) {
    rows.push_back(to_row(to_point(latest)));
  }
  return rows;
}

}  // namespace

void set_step(TrainingMetrics& metrics, std::uint64_t step, std::uint64_t steps,
              std::uint64_t steps_per_epoch) {
  metrics.step = step;
  metrics.steps = steps;
  metrics.epochs = (steps + steps_per_epoch - 1) / steps_per_epoch;
  if (step > 0) {
    metrics.epoch = (step - 1) / steps_per_epoch + 1;
  }
}

void add_step(TrainingMetrics& metrics, const StepReport& report) {
  ++metrics.completed_steps;
  metrics.images += report.images;
  if (report.stall_seconds) {
    metrics.stall_seconds = metrics.stall_seconds.value_or(0) + *report.stall_seconds;
  }
  set_step(metrics, report.step, report.steps, report.steps_per_epoch);
  metrics.loss = report.loss;
  if (report.images_per_second > 0) {
    metrics.images_per_second = report.images_per_second;
  }
  metrics.stall_fraction = report.stall_fraction;
  if (report.loss_scaling) {
    metrics.loss_scale = report.loss_scaling->scale;
    metrics.skipped_steps = report.loss_scaling->skipped_steps;
  }
  metrics.memory_bytes = report.memory_bytes;
  metrics.peak_bytes = report.peak_bytes;
}

std::string to_prometheus(const std::optional<TrainingMetrics>& metrics) {
  if (!metrics) {
    return "";
  }
  PrometheusText text;
  text.add("vdnn_training_info", "gauge", "Always 1; the labels name model, device and policy.",
           info_labels(*metrics), "1");
  text.counter("vdnn_steps_total", "Steps that this process has completed.", metrics->completed_steps);
  text.counter("vdnn_images_total", "Images that these steps have trained on, of all ranks.",
               metrics->images);
  if (metrics->stall_seconds) {
    text.counter(
        "vdnn_stall_seconds_total",
        "Time that the compute stream has waited for copies, over the steps that the device has timed.",
        *metrics->stall_seconds);
  }
  text.gauge("vdnn_step",
             "Completed steps since the start of the training, including those before a checkpoint.",
             metrics->step);
  text.gauge("vdnn_planned_steps", "Steps of the whole training.", metrics->steps);
  text.gauge("vdnn_epoch", "Epoch of the last completed step, from 1.", metrics->epoch);
  text.gauge("vdnn_planned_epochs", "Epochs of the whole training, the last one perhaps incomplete.",
             metrics->epochs);
  text.gauge("vdnn_loss", "Loss of the last completed step.", metrics->loss);
  text.gauge("vdnn_images_per_second", "Images per second in the last completed step, of all ranks.",
             metrics->images_per_second);
  text.gauge("vdnn_stall_ratio", "Share of the last step in which the compute stream waited for copies.",
             metrics->stall_fraction);
  text.gauge("vdnn_memory_bytes", "Committed device memory.", metrics->memory_bytes);
  text.gauge("vdnn_memory_peak_bytes", "Largest committed device memory so far.", metrics->peak_bytes);
  text.gauge("vdnn_memory_budget_bytes", "Budget of device memory.", metrics->budget_bytes);
  if (metrics->loss_scale) {
    text.gauge("vdnn_loss_scale", "Factor by which losses are multiplied.", metrics->loss_scale);
    text.counter("vdnn_skipped_steps_total", "Updates that were skipped because gradients overflowed.",
                 metrics->skipped_steps);
  }
  text.gauge("vdnn_ranks", "Processes that train together.", metrics->ranks);
  return text.take();
}

void MetricsRange::add(std::optional<double> value) {
  if (value && std::isfinite(*value)) {
    least = std::min(least.value_or(*value), *value);
    greatest = std::max(greatest.value_or(*value), *value);
  }
}

MetricsHistory::MetricsHistory(std::size_t capacity) : capacity_(capacity) {
  if (capacity < 2 || capacity % 2 != 0) {
    throw InvalidArgument("a history has an even capacity of at least 2, not " + std::to_string(capacity));
  }
  points_.reserve(capacity);
}

void MetricsHistory::add(const MetricsPoint& point) {
  ranges_.loss.add(point.loss);
  ranges_.images_per_second.add(point.images_per_second);
  ranges_.stall_fraction.add(point.stall_fraction);
  ranges_.memory_bytes.add(point.memory_bytes);
  if (added_++ % stride_ != 0) {
    return;
  }
  if (points_.size() == capacity_) {
    for (std::size_t i = 0; i < capacity_ / 2; ++i) {
      points_[i] = points_[2 * i];
    }
    points_.resize(capacity_ / 2);
    stride_ *= 2;  // capacity_ is even, so this point is one of those that are kept
  }
  points_.push_back(point);
}

void LiveMetrics::start(const TrainingMetrics& initial) {
  const std::scoped_lock lock(mutex_);
  latest_ = initial;
}

void LiveMetrics::publish(const TrainingMetrics& metrics) {
  unpublished_.push_back(to_point(metrics));
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock) {
    return;
  }
  latest_ = metrics;
  for (const MetricsPoint& point : unpublished_) {
    history_.add(point);
  }
  unpublished_.clear();
}

std::optional<TrainingMetrics> LiveMetrics::latest() const {
  const std::scoped_lock lock(mutex_);
  return latest_;
}

nlohmann::ordered_json LiveMetrics::to_json() const {
  std::optional<TrainingMetrics> latest;
  MetricsHistory history;
  {
    const std::scoped_lock lock(mutex_);
    latest = latest_;
    history = history_;
  }
  if (!latest) {
    return nlohmann::ordered_json::object();
  }
  return {{"model", latest->model},
          {"device", latest->device},
          {"policy", latest->policy},
          {"ranks", latest->ranks},
          {"step", latest->step},
          {"steps", latest->steps},
          {"epoch", or_null(latest->epoch)},
          {"epochs", latest->epochs},
          {"loss", or_name(latest->loss)},
          {"images_per_second", or_null(latest->images_per_second)},
          {"stall_fraction", or_null(latest->stall_fraction)},
          {"stall_seconds", or_null(latest->stall_seconds)},
          {"memory_bytes", or_null(latest->memory_bytes)},
          {"peak_bytes", or_null(latest->peak_bytes)},
          {"budget_bytes", latest->budget_bytes},
          {"loss_scale", or_null(latest->loss_scale)},
          {"skipped_steps", latest->skipped_steps},
          {"history_columns", kColumns},
          {"history", to_rows(history, *latest)},
          {"ranges", to_pairs(history.ranges())}};
}

}  // namespace vdnn
