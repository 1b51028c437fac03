#include "src/report/report_drawing.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <vector>

namespace vdnn {

const char* css_class(Content content) {
  constexpr std::array<const char*, kContents> kNames{
      "parameters", "state", "inputs", "maps", "saved", "gradients", "dparameters", "workspace", "results"};
  return kNames[static_cast<std::size_t>(content)];
}

const char* css_class(const PicturedWork& work) {
  constexpr std::array<const char*, 3> kPhases{"forward", "backward", "update"};
  if (work.stream == StreamRole::kReduce) {
    return "reduce";
  }
  switch (work.kind) {
    case InstructionKind::kRecompute:
      return "recompute";
    case InstructionKind::kOffload:
      return "offload";
    case InstructionKind::kPrefetch:
      return "prefetch";
    case InstructionKind::kLoad:
      return "load";
    case InstructionKind::kReadResult:
      return "result";
    case InstructionKind::kLaunch:
    case InstructionKind::kAllocate:
    case InstructionKind::kRelease:
      break;
  }
  return kPhases[static_cast<std::size_t>(work.phase)];
}

namespace {

struct Span {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

// Maps seconds to x; the step repeats.
class TimeScale {
 public:
  explicit TimeScale(double step_seconds) : step_(step_seconds) {}

  // The pieces within one step of the interval from `begin` to `end`; each has a width above 0.
  std::vector<Span> pieces(double begin, double end) const {
    if (end - begin >= step_) {
      return {{0, kDrawingWidth}};
    }
    const double step_of_begin = std::floor(begin / step_) * step_;
    const std::int64_t from = std::min(place(begin - step_of_begin), kDrawingWidth - 1);
    const std::int64_t to = std::max(place(end - step_of_begin), from + 1);
    if (to <= kDrawingWidth) {
      return {{from, to}};
    }
    return {{from, kDrawingWidth}, {0, to - kDrawingWidth}};
  }

  // The x of a moment in the step.
  std::int64_t place(double seconds) const {
    return std::llround(seconds / step_ * static_cast<double>(kDrawingWidth));
  }

 private:
  double step_;
};

class ByteScale {
 public:
  explicit ByteScale(std::uint64_t top) : top_(static_cast<double>(top)) {}

  std::int64_t height(std::uint64_t bytes) const {
    return std::llround(static_cast<double>(bytes) / top_ * static_cast<double>(kDrawingHeight));
  }
  std::int64_t y(std::uint64_t bytes) const { return kDrawingHeight - height(bytes); }

 private:
  double top_;
};

// --- memory by content -------------------------------------------------------------------------------------

// The layers of the stack from bottom to top; contents that change least are lowest. kAhead: values that are
// fetched before they are needed. kLeaving: values that wait for their copies to the host.
constexpr std::size_t kAhead = kContents;
constexpr std::size_t kLeaving = kContents + 1;
constexpr std::size_t kLayers = kContents + 2;
constexpr std::array<std::size_t, kLayers> kStack{static_cast<std::size_t>(Content::kParameters),
                                                  static_cast<std::size_t>(Content::kOptimizerState),
                                                  static_cast<std::size_t>(Content::kInputs),
                                                  static_cast<std::size_t>(Content::kFeatureMaps),
                                                  static_cast<std::size_t>(Content::kSaved),
                                                  kLeaving,
                                                  kAhead,
                                                  static_cast<std::size_t>(Content::kParameterGradients),
                                                  static_cast<std::size_t>(Content::kGradientMaps),
                                                  static_cast<std::size_t>(Content::kResults),
                                                  static_cast<std::size_t>(Content::kWorkspace)};

const char* layer_class(std::size_t layer) {
  if (layer == kAhead) {
    return "ahead";
  }
  return layer == kLeaving ? "leaving" : css_class(static_cast<Content>(layer));
}

// The bytes that a layer of the stack gains at x.
struct Change {
  std::int64_t x = 0;
  std::size_t position = 0;
  std::int64_t bytes = 0;
};

std::size_t position_of(std::size_t layer) {
  return static_cast<std::size_t>(std::ranges::find(kStack, layer) - kStack.begin());
}

std::vector<Change> changes(const StepPicture& picture, const TimeScale& time) {
  std::vector<Change> result;
  const auto add = [&](std::size_t layer, double begin, double end, std::uint64_t bytes) {
    if (begin < end) {
      const std::size_t position = position_of(layer);
      for (const Span& piece : time.pieces(begin, end)) {
        result.push_back({piece.begin, position, static_cast<std::int64_t>(bytes)});
        result.push_back({piece.end, position, -static_cast<std::int64_t>(bytes)});
      }
    }
  };
  for (const Stay& stay : picture.stays) {
    add(kAhead, stay.begin, stay.needed_from, stay.bytes);
    add(static_cast<std::size_t>(stay.content), stay.needed_from, stay.needed_until, stay.bytes);
    add(kLeaving, stay.needed_until, stay.end, stay.bytes);
  }
  std::ranges::sort(result, {}, &Change::x);
  return result;
}

// Draws a layer as the whole area below its upper edge. The layers above it must have been drawn earlier; it
// covers the lower part of their areas.
void draw_layer(std::ostream& out, std::size_t position, std::span<const Change> changes,
                const ByteScale& scale) {
  out << "<path class=\"" << layer_class(kStack[position]) << "\" d=\"M0 " << kDrawingHeight;
  std::int64_t bytes = 0;
  std::int64_t drawn_x = 0;
  std::int64_t drawn_y = kDrawingHeight;
  for (std::size_t at = 0; at < changes.size();) {
    const std::int64_t x = changes[at].x;
    for (; at < changes.size() && changes[at].x == x; ++at) {
      bytes += changes[at].position <= position ? changes[at].bytes : 0;
    }
    const std::int64_t y = scale.y(static_cast<std::uint64_t>(std::max<std::int64_t>(bytes, 0)));
    if (y != drawn_y) {
      out << 'h' << x - drawn_x << 'v' << y - drawn_y;
      drawn_x = x;
      drawn_y = y;
    }
  }
  out << 'H' << kDrawingWidth << 'V' << kDrawingHeight << "z\"/>\n";
}

void draw_handed_out(std::ostream& out, const StepPicture& picture, const TimeScale& time,
                     const ByteScale& scale) {
  if (picture.handed_out.empty()) {
    return;
  }
  // Samples outside the step are moved to its nearer end.
  std::vector<BytesAt> samples;
  for (const BytesAt& sample : picture.handed_out) {
    samples.push_back({std::clamp(sample.seconds, 0.0, picture.step_seconds), sample.bytes});
  }
  std::int64_t drawn_y = scale.y(samples.back().bytes);
  out << "<path class=\"handed-out\" d=\"M0 " << drawn_y;
  for (std::size_t at = 0; at < samples.size(); ++at) {
    const std::int64_t x = time.place(samples[at].seconds);
    if (at + 1 < samples.size() && time.place(samples[at + 1].seconds) == x) {
      continue;
    }
    if (const std::int64_t y = scale.y(samples[at].bytes); y != drawn_y) {
      out << 'H' << x << 'V' << y;
      drawn_y = y;
    }
  }
  out << 'H' << kDrawingWidth << "\"/>\n";
}

// --- rectangles --------------------------------------------------------------------------------------------

struct Box {
  std::int64_t y = 0;
  std::int64_t height = 0;
};

void draw_rectangle(std::ostream& out, const char* css, const Span& x, const Box& box, const char* list,
                    std::size_t index) {
  out << "<rect class=\"" << css << "\" x=\"" << x.begin << "\" y=\"" << box.y << "\" width=\""
      << x.end - x.begin << "\" height=\"" << std::max<std::int64_t>(box.height, 1) << "\" data-" << list
      << "=\"" << index << "\"/>\n";
}

}  // namespace

void draw_memory(std::ostream& out, const StepPicture& picture, std::uint64_t top) {
  const TimeScale time(picture.step_seconds);
  const ByteScale scale(top);
  const std::vector<Change> all = changes(picture, time);
  for (std::size_t position = kLayers; position-- > 0;) {
    draw_layer(out, position, all, scale);
  }
  draw_handed_out(out, picture, time, scale);
}

void draw_places(std::ostream& out, const StepPicture& picture, std::uint64_t top) {
  const TimeScale time(picture.step_seconds);
  const ByteScale scale(top);
  for (std::size_t index = 0; index < picture.stays.size(); ++index) {
    const Stay& stay = picture.stays[index];
    const std::int64_t upper = scale.y(stay.address + stay.bytes);
    const Box box{.y = upper, .height = scale.y(stay.address) - upper};
    const auto draw = [&](const char* css, double begin, double end) {
      for (const Span& piece : time.pieces(begin, end)) {
        draw_rectangle(out, css, piece, box, "stay", index);
      }
    };
    if (stay.begin < stay.needed_from) {
      draw("ahead", stay.begin, stay.needed_from);
    }
    if (stay.needed_from < stay.needed_until || stay.begin == stay.end) {
      draw(css_class(stay.content), stay.needed_from, stay.needed_until);
    }
    if (stay.needed_until < stay.end) {
      draw("leaving", stay.needed_until, stay.end);
    }
  }
}

std::size_t lanes(const StepPicture& picture) {
  const bool reduces = std::ranges::count(picture.work, StreamRole::kReduce, &PicturedWork::stream) > 0;
  return reduces ? kStreamRoles : kStreamRoles - 1;
}

void draw_streams(std::ostream& out, const StepPicture& picture) {
  const std::int64_t height = kDrawingHeight / static_cast<std::int64_t>(lanes(picture));
  const std::int64_t margin = height / 8;
  const TimeScale time(picture.step_seconds);
  const auto lane = [&](StreamRole stream) {
    return Box{.y = static_cast<std::int64_t>(stream) * height + margin, .height = height - 2 * margin};
  };
  for (std::size_t index = 0; index < picture.stalls.size(); ++index) {
    const Stall& stall = picture.stalls[index];
    for (const Span& piece : time.pieces(stall.begin, stall.end)) {
      draw_rectangle(out, "stall", piece, lane(StreamRole::kCompute), "stall", index);
    }
  }
  for (std::size_t index = 0; index < picture.work.size(); ++index) {
    const PicturedWork& work = picture.work[index];
    for (const Span& piece : time.pieces(work.begin, work.end)) {
      draw_rectangle(out, css_class(work), piece, lane(work.stream), "work", index);
    }
  }
}

}  // namespace vdnn
