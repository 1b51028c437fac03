#pragma once
// The three drawings of a plan's report as SVG: the bytes in use by content, the address of every value, and
// the work of the streams. Each fills a box of kDrawingWidth by kDrawingHeight units, which a page may
// stretch. The x axis is one step. The y axis is bytes from 0 to `top` (upwards) or, for streams, one lane
// per stream.
//
// The step repeats, so an element that crosses its end is drawn in two pieces. Both have the same
// `data-stay`, an index into StepPicture::stays, or `data-work`, an index into StepPicture::work.

#include <cstdint>
#include <ostream>

#include "src/report/step_picture.h"

namespace vdnn {

inline constexpr std::int64_t kDrawingWidth = 100'000;
inline constexpr std::int64_t kDrawingHeight = 10'000;

// The CSS classes of the drawings. There is one for each content and each kind of work, and `stall`. `ahead`
// is for values that are fetched before they are needed, `leaving` for values that wait for their copies to
// the host.
const char* css_class(Content content);
const char* css_class(const PicturedWork& work);

// Draws the bytes in use as a stack with one layer per content, and the bytes that the instructions allocate
// as a line.
void draw_memory(std::ostream& out, const StepPicture& picture, std::uint64_t top);
// Draws one rectangle per Stay, at its address.
void draw_places(std::ostream& out, const StepPicture& picture, std::uint64_t top);
// The number of streams drawn; reductions have a lane only if there are any.
std::size_t lanes(const StepPicture& picture);
// Draws one lane per stream, in the order of StreamRole. Stalls are in the compute stream's lane.
void draw_streams(std::ostream& out, const StepPicture& picture);

}  // namespace vdnn
