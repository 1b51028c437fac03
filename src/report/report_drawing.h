#pragma once
// The drawings of a plan's report as SVG: memory over the step by what it holds, every place in memory, and
// streams. Each fills a box of kDrawingWidth by kDrawingHeight units, which a page stretches as it likes: x
// is one step, y bytes from 0 to `top` (upwards), or the streams. What is drawn twice, because the step
// repeats, has the same data-stay or data-work, an index into the picture's lists.

#include <cstdint>
#include <ostream>

#include "src/report/step_picture.h"

namespace vdnn {

inline constexpr std::int64_t kDrawingWidth = 100'000;
inline constexpr std::int64_t kDrawingHeight = 10'000;

// The classes (CSS) of what is drawn: those of contents, `ahead` and `leaving` for what has been fetched
// before it is needed and what only leaves, those of kinds of work and `stall`.
const char* css_class(Content content);
const char* css_class(const PicturedWork& work);

// Stacked: bytes in use by content, and as a line what the list hands out.
void draw_memory(std::ostream& out, const StepPicture& picture, std::uint64_t top);
// A rectangle a stay, where it lies.
void draw_places(std::ostream& out, const StepPicture& picture, std::uint64_t top);
// Streams that are drawn: what devices reduce together has a lane only where there is any.
std::size_t lanes(const StepPicture& picture);
// A lane a stream, in the order of StreamRole; what the compute stream waits is in its lane.
void draw_streams(std::ostream& out, const StepPicture& picture);

}  // namespace vdnn
