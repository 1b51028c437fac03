#include "src/report/sweep_chart.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iomanip>
#include <limits>
#include <ostream>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "src/report/markup.h"
#include "vdnn/size.h"

namespace vdnn {

namespace {

// Lengths in units of the picture.
constexpr double kWidth = 900;
constexpr double kHeight = 500;
constexpr double kLeft = 70;
constexpr double kRight = 720;
constexpr double kBottom = 430;
constexpr double kLegendLeft = 745;
constexpr double kLegendLine = 24;
constexpr double kTitleSize = 17;
constexpr double kSubtitleSize = 12;
// Widths of lines. The line of the first approach requested is the thinnest. Each further line is wider, by
// at most kMostWider, so that approaches with the same times stay visible.
constexpr double kThinnest = 2;
constexpr double kWidest = 11;
constexpr double kMostWider = 1.5;
// The average width of a letter of a sans-serif font, with a margin, as a part of the font size.
constexpr double kLetterWidth = 0.56;

// Names of files may contain characters that XML does not allow.
std::string printable(std::string_view text) {
  std::string result(text);
  std::ranges::replace_if(
      result, [](char each) { return each < ' ' || each > '~'; }, '?');
  return result;
}

std::string number(double value, int digits) {
  std::ostringstream text;
  text << std::setprecision(digits) << value;
  return text.str();
}

// A logarithmic scale.
class Scale {
 public:
  Scale(double least, double most, double begin, double end) : begin_(begin), end_(end) {
    // A margin, and a nonzero range if there is only one value.
    const double border = std::max(0.03 * std::log(most / least), 0.01);
    least_ = std::log(least) - border;
    most_ = std::log(most) + border;
  }

  double operator()(double value) const {
    return begin_ + (std::log(value) - least_) / (most_ - least_) * (end_ - begin_);
  }
  double least() const { return std::exp(least_); }
  double most() const { return std::exp(most_); }

 private:
  double begin_;
  double end_;
  double least_ = 0;
  double most_ = 0;
};

// Values for the labels of a scale, at least `distance` apart. Each is a power of `base` times a factor.
// Factors of the first class are tried first.
std::vector<double> ticks(const Scale& scale, double base, const std::vector<std::vector<double>>& classes,
                          double distance) {
  std::vector<double> result;
  const auto exponent = [&](double value) {
    return static_cast<int>(std::floor(std::log(value) / std::log(base)));
  };
  for (const std::vector<double>& factors : classes) {
    for (int power = exponent(scale.least()); power <= exponent(scale.most()); ++power) {
      for (const double factor : factors) {
        const double value = std::pow(base, power) * factor;
        const bool inside = value >= scale.least() && value <= scale.most();
        if (inside && std::ranges::all_of(result, [&](double other) {
              return std::abs(scale(value) - scale(other)) >= distance;
            })) {
          result.push_back(value);
        }
      }
    }
  }
  std::ranges::sort(result);
  return result;
}

const char* color_of(Policy policy) {
  switch (policy) {
    case Policy::kOptimal:
      return "#1f6fb4";
    case Policy::kDynamic:
      return "#d9730d";
    case Policy::kOffloadNone:
      return "#2f8f4e";
    case Policy::kOffloadConv:
      return "#8a56ac";
    case Policy::kOffloadAll:
      return "#b3323a";
    case Policy::kBaseline:
      return "#6b6b6b";
  }
  return "#000000";
}

const char* color_of(Peer peer) {
  switch (peer) {
    case Peer::kCheckpointBlocks:
      return "#c9a227";
    case Peer::kCheckpointSqrt:
      return "#7a5c1e";
    case Peer::kSaveOnCpu:
      return "#b3323a";
    case Peer::kOffloadInputs:
      return "#8a56ac";
    case Peer::kRotor:
      return "#d9730d";
  }
  return "#000000";
}

const char* color_of(Approach approach) {
  return std::visit([](auto which) { return color_of(which); }, approach);
}

// The style of a precision, the same in every chart.
struct PrecisionStyle {
  const char* dashes;  // of stroke-dasharray
  bool square;         // the mark is a square, else a circle
  bool hollow;
};

PrecisionStyle style_of(const std::string& precision) {
  if (precision == "tf32") {
    return {.dashes = "9 3", .square = false, .hollow = true};
  }
  if (precision == "bf16") {
    return {.dashes = "5 4", .square = true, .hollow = false};
  }
  if (precision == "fp16") {
    return {.dashes = "2 3", .square = true, .hollow = true};
  }
  return {.dashes = "none", .square = false, .hollow = false};
}

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (std::size_t each = 0; each < words.size(); ++each) {
    text += each == 0 ? "" : each + 1 < words.size() ? ", " : " and ";
    text += words[each];
  }
  return text;
}

// Breaks text between words into lines of this font size that begin at kLeft and end within the chart.
std::vector<std::string> wrapped(const std::string& text, double font_size) {
  const auto most = static_cast<std::size_t>((kWidth - kLeft) / (kLetterWidth * font_size));
  std::istringstream words(text);
  std::vector<std::string> lines{""};
  for (std::string word; words >> word;) {
    if (!lines.back().empty() && lines.back().size() + 1 + word.size() > most) {
      lines.emplace_back();
    }
    lines.back() += (lines.back().empty() ? "" : " ") + word;
  }
  return lines;
}

class Chart {
 public:
  Chart(std::ostream& out, const Sweep& sweep)
      : out_(out),
        sweep_(sweep),
        compares_precisions_(sweep.precisions.size() > 1),
        time_unit_seconds_(compares_precisions_ ? 1e-3 : sweep.points.front().oracle_step_seconds),
        x_(static_cast<double>(sweep.points.front().budget_bytes),
           static_cast<double>(sweep.points.back().budget_bytes), kLeft, kRight),
        title_(wrapped(title(), kTitleSize)),
        subtitle_(wrapped(subtitle(), kSubtitleSize)),
        top_(14 + 1.3 * (kTitleSize * static_cast<double>(title_.size()) +
                         kSubtitleSize * static_cast<double>(subtitle_.size()) + kSubtitleSize)),
        y_(least_time(), most_time(), kBottom, top_) {}

  void write() {
    out_ << std::fixed << std::setprecision(2);
    open();
    shade_bound();
    draw_axes();
    // If approaches coincide, the line of the first one requested is on top, and the wider lines of the
    // others surround it.
    for (std::size_t each = sweep_.approaches.size(); each-- > 0;) {
      for (const std::string& precision : sweep_.precisions) {
        draw(sweep_.approaches[each], precision, width_of(each));
      }
    }
    draw_legend();
    out_ << "</svg>\n";
  }

 private:
  // The width of an approach's line.
  double width_of(std::size_t approach) const {
    const auto others = static_cast<double>(std::max<std::size_t>(sweep_.approaches.size(), 2) - 1);
    return kThinnest + std::min(kMostWider, (kWidest - kThinnest) / others) * static_cast<double>(approach);
  }
  static double radius_of(double line_width) { return 1.5 + line_width; }

  // The time in units of the axis.
  double in_units(double seconds) const { return seconds / time_unit_seconds_; }
  double least_time() const {
    double least = sweep_.points.front().oracle_step_seconds;
    for (const SweepPoint& point : sweep_.points) {
      least = std::min({least, point.oracle_step_seconds, point.lower_bound_step_seconds});
    }
    return in_units(least);
  }
  double most_time() const {
    double most = 0;
    for (const SweepPoint& point : sweep_.points) {
      most = std::max({most, point.oracle_step_seconds, point.lower_bound_step_seconds,
                       point.fits ? point.step_seconds : 0});
    }
    return in_units(most);
  }

  double x(const SweepPoint& point) const { return x_(static_cast<double>(point.budget_bytes)); }
  double y(const SweepPoint& point) const { return y_(in_units(point.step_seconds)); }

  void text(double x, double y, const char* attributes, const std::string& content) {
    out_ << "<text x=\"" << x << "\" y=\"" << y << "\" " << attributes << ">" << escaped(printable(content))
         << "</text>\n";
  }
  void line(const char* name, double x1, double y1, double x2, double y2) {
    out_ << "<line class=\"" << name << "\" x1=\"" << x1 << "\" y1=\"" << y1 << "\" x2=\"" << x2 << "\" y2=\""
         << y2 << "\"/>\n";
  }

  std::string title() const {
    const PlannedRun& run = sweep_.last;
    return "Step time over memory budget: " + run.tape->model() + ", batch " + std::to_string(run.batch()) +
           ", on " + run.target.name + (run.target.simulated ? " (simulated)" : "") +
           (compares_precisions_ ? ", in " + joined(sweep_.precisions) : "");
  }
  std::string subtitle() const {
    return "A plan also fits every larger budget, so between two marks a step takes at most the time at the "
           "left mark. Oracle (" +
           oracles() +
           " ms): policy none with its fastest algorithms in unlimited memory. A plan that hides the load of "
           "its input can be faster than the oracle.";
  }
  // Returns where the next line begins.
  double lines(const std::vector<std::string>& lines, double font_size, double y) {
    const std::string attributes = "font-size=\"" + number(font_size, 2) + "\"";
    for (const std::string& each : lines) {
      y += 1.3 * font_size;
      text(kLeft, y, attributes.c_str(), each);
    }
    return y;
  }

  void open() {
    out_ << "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
         << "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" << kWidth << "\" height=\"" << kHeight
         << "\" viewBox=\"0 0 " << kWidth << " " << kHeight
         << "\" font-family=\"sans-serif\" font-size=\"13\">\n"
         << "<title>" << escaped(printable(title())) << "</title>\n"
         << "<style>.grid{stroke:#dddddd} .axis{stroke:#555555} .bound{fill:#ececec} "
            ".curve{fill:none;stroke-linejoin:round} text{fill:#222222}</style>\n"
         << "<rect width=\"" << kWidth << "\" height=\"" << kHeight << "\" fill=\"#ffffff\"/>\n";
    lines(subtitle_, kSubtitleSize, lines(title_, kTitleSize, 10) + 4);
  }
  // The oracles' step times in milliseconds.
  std::string oracles() const {
    std::vector<std::string> texts;
    for (std::size_t each = 0; each < sweep_.precisions.size(); ++each) {
      texts.push_back((compares_precisions_ ? sweep_.precisions[each] + " " : "") +
                      number(1e3 * sweep_.points[each].oracle_step_seconds, 4));
    }
    return joined(texts);
  }

  // The lower bound on the step time in that budget, in whichever precision it is least.
  double bound_seconds(std::uint64_t budget_bytes) const {
    double least = std::numeric_limits<double>::infinity();
    for (const SweepPoint& point : sweep_.points) {
      least = point.budget_bytes == budget_bytes ? std::min(least, point.lower_bound_step_seconds) : least;
    }
    return least;
  }

  // Shades the area that no plan can reach. The lower bound falls as memory grows and is known at the budgets
  // of the points. In a budget between two points, it is at least the bound at the larger one.
  void shade_bound() {
    out_ << "<polygon class=\"bound\" points=\"" << kLeft << "," << kBottom << " ";
    double left = kLeft;
    for (const SweepPoint& point : sweep_.points) {
      const double right = x(point);
      if (right > left) {
        const double height = y_(in_units(bound_seconds(point.budget_bytes)));
        out_ << left << "," << height << " " << right << "," << height << " ";
        left = right;
      }
    }
    out_ << left << "," << kBottom << "\"/>\n";
  }

  void draw_axes() {
    for (const double bytes : ticks(x_, 2, {{1}, {1.5}, {1.25, 1.75}, {1.125, 1.375, 1.625, 1.875}}, 75)) {
      line("grid", x_(bytes), top_, x_(bytes), kBottom);
      text(x_(bytes), kBottom + 20, "class=\"x\" text-anchor=\"middle\"",
           format_rounded_size(static_cast<std::uint64_t>(std::llround(bytes))));
    }
    for (const double time :
         ticks(y_, 10, {{1}, {2, 5}, {1.5, 3, 7}, {1.1, 1.2, 1.3, 1.75}, {9, 9.5}, {1.05, 1.02, 9.8, 9.9}},
               24)) {
      line("grid", kLeft, y_(time), kRight, y_(time));
      text(kLeft - 8, y_(time) + 4, "class=\"y\" text-anchor=\"end\"", number(time, 3));
    }
    line("axis", kLeft, kBottom, kRight, kBottom);
    line("axis", kLeft, top_, kLeft, kBottom);
    text((kLeft + kRight) / 2, kBottom + 48, "class=\"axis-title\" text-anchor=\"middle\"",
         "budget of device memory");
    text(-(top_ + kBottom) / 2, 16, "class=\"axis-title\" text-anchor=\"middle\" transform=\"rotate(-90)\"",
         compares_precisions_ ? "time of a step in ms" : "step time relative to the oracle");
  }

  void open_group(const char* color, const PrecisionStyle& style) {
    out_ << "<g stroke=\"" << color << "\" fill=\"" << (style.hollow ? "#ffffff" : color)
         << "\" stroke-width=\"" << (style.hollow ? "1.5" : "1") << "\">\n";
  }

  // Leaves the tag open for a title.
  void open_mark(const PrecisionStyle& style, const std::string& name, double x, double y, double radius) {
    out_ << '<' << tag_of(style) << " class=\"" << name << "\" ";
    if (style.square) {
      out_ << "x=\"" << x - radius << "\" y=\"" << y - radius << "\" width=\"" << 2 * radius << "\" height=\""
           << 2 * radius << "\">";
    } else {
      out_ << "cx=\"" << x << "\" cy=\"" << y << "\" r=\"" << radius << "\">";
    }
  }
  void close_mark(const PrecisionStyle& style) { out_ << "</" << tag_of(style) << ">\n"; }
  static const char* tag_of(const PrecisionStyle& style) { return style.square ? "rect" : "circle"; }

  // Draws a step function: between two budgets the plan for the smaller one is used. The last step extends to
  // the right border.
  void draw_curve(const std::vector<const SweepPoint*>& points, const PrecisionStyle& style, double width) {
    out_ << "<polyline class=\"curve\" stroke-width=\"" << width << "\" stroke-dasharray=\"" << style.dashes
         << "\" points=\"";
    for (std::size_t each = 0; each < points.size(); ++each) {
      const double right = each + 1 < points.size() ? x(*points[each + 1]) : kRight;
      out_ << x(*points[each]) << "," << y(*points[each]) << " " << right << "," << y(*points[each]) << " ";
    }
    out_ << "\"/>\n";
  }

  void draw(Approach approach, const std::string& precision, double width) {
    std::vector<const SweepPoint*> fitting;
    for (const SweepPoint& point : sweep_.points) {
      if (point.approach == approach && point.precision == precision && point.fits) {
        fitting.push_back(&point);
      }
    }
    const PrecisionStyle style = style_of(precision);
    open_group(color_of(approach), style);
    if (!fitting.empty()) {
      draw_curve(fitting, style, width);
    }
    for (const SweepPoint* point : fitting) {
      open_mark(style, to_string(approach), x(*point), y(*point), radius_of(width));
      out_ << "<title>" << series_name(sweep_, *point) << " in " << format_rounded_size(point->budget_bytes)
           << ": " << number(1e3 * point->step_seconds, 5) << " ms, " << number(100 * point->over_oracle(), 3)
           << " % over the oracle</title>";
      close_mark(style);
    }
    out_ << "</g>\n";
  }

  bool fits_anywhere(Approach approach) const {
    return std::ranges::any_of(
        sweep_.points, [&](const SweepPoint& point) { return point.approach == approach && point.fits; });
  }

  void draw_legend() {
    double y = top_ + 10;
    for (std::size_t each = 0; each < sweep_.approaches.size(); ++each) {
      const Approach approach = sweep_.approaches[each];
      out_ << "<g stroke=\"" << color_of(approach) << "\" stroke-width=\"" << width_of(each) << "\">";
      line("sample", kLegendLeft, y - 4, kLegendLeft + 24, y - 4);
      out_ << "</g>\n";
      text(kLegendLeft + 32, y, "class=\"legend\"",
           to_string(approach) + (fits_anywhere(approach) ? "" : ": does not fit"));
      y += kLegendLine;
    }
    if (compares_precisions_) {
      y = draw_legend_of_precisions(y + kLegendLine / 2);
    }
    out_ << "<rect x=\"" << kLegendLeft << "\" y=\"" << y - 12
         << "\" width=\"24\" height=\"14\" class=\"bound\""
         << " stroke=\"#bbbbbb\"/>\n";
    text(kLegendLeft + 32, y, "class=\"legend\"", "no plan possible");
  }

  // Returns where the legend continues.
  double draw_legend_of_precisions(double y) {
    for (const std::string& precision : sweep_.precisions) {
      const PrecisionStyle style = style_of(precision);
      open_group("#555555", style);
      out_ << "<line class=\"precision-sample\" stroke-width=\"2\" stroke-dasharray=\"" << style.dashes
           << "\" x1=\"" << kLegendLeft - 4 << "\" y1=\"" << y - 4 << "\" x2=\"" << kLegendLeft + 28
           << "\" y2=\"" << y - 4 << "\"/>\n";
      open_mark(style, "sample", kLegendLeft + 12, y - 4, 4);
      close_mark(style);
      out_ << "</g>\n";
      text(kLegendLeft + 32, y, "class=\"legend\"", precision);
      y += kLegendLine;
    }
    return y + kLegendLine / 2;
  }

  std::ostream& out_;
  const Sweep& sweep_;
  bool compares_precisions_;
  double time_unit_seconds_;
  Scale x_;
  std::vector<std::string> title_;
  std::vector<std::string> subtitle_;
  double top_;
  Scale y_;
};

}  // namespace

void write_sweep_chart(std::ostream& out, const Sweep& sweep) {
  std::ostringstream text;  // with its own number format
  Chart(text, sweep).write();
  out << text.str();
}

}  // namespace vdnn
