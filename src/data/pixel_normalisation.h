#pragma once
// Normalises pixels so that each channel has mean 0 and standard deviation 1 over the training split.

#include <array>
#include <cstddef>

namespace vdnn {

// Statistics of one channel of the training split. Brightness is from 0 to 1.
struct ChannelStatistics {
  float mean = 0;
  float deviation = 1;

  float normalise(float brightness) const { return (brightness - mean) / deviation; }
};

// The normalised value for each of the 256 values of an 8-bit pixel.
using PixelTable = std::array<float, 256>;

inline PixelTable pixel_table(const ChannelStatistics& channel) {
  PixelTable table{};
  for (std::size_t value = 0; value < table.size(); ++value) {
    table[value] = channel.normalise(static_cast<float>(value) / 255.0F);
  }
  return table;
}

}  // namespace vdnn
