#pragma once
// The drawings of a plan's report as SVG: memory over the step by contents, every place in memory, and
// streams. Each fills a box of kDrawingWidth by kDrawingHeight units, which a page may stretch. The x axis is
// one step; the y axis is bytes from 0 to `top` (upwards), or the streams. Elements drawn twice, because the
// step repeats, have the same data-stay or data-work, an index into the picture's lists.

#include <cstdint>
#include <ostream>

#include "src/report/step_picture.h"

namespace vdnn {

inline constexpr std::int64_t kDrawingWidth = 100'000;
inline constexpr std::int64_t kDrawingHeight = 10'000;

// The CSS classes of the drawings: one for each content, `ahead` and `leaving` for values fetched before they
// are needed and values on their way out, one for each kind of work, and `stall`.
const char* css_class(Content content);
const char* css_class(const PicturedWork& work);

// Draws the bytes in use, stacked by content, and as a line the bytes that the instructions allocate.
void draw_memory(std::ostream& out, const StepPicture& picture, std::uint64_t top);
// Draws one rectangle per stay, at its address.
void draw_places(std::ostream& out, const StepPicture& picture, std::uint64_t top);
// The number of streams drawn; reductions have a lane only if there are any.
std::size_t lanes(const StepPicture& picture);
// Draws one lane per stream, in the order of StreamRole. Stalls are in the compute stream's lane.
void draw_streams(std::ostream& out, const StepPicture& picture);

}  // namespace vdnn
