#pragma once
// Sums over the places of each channel of each sample, for maps with channels last. Neighbouring threads sum
// neighbouring channels. If there are fewer channels than threads, a block sums several places at once.

#include <cstdint>

#include "src/ops/cuda/kernels/row_sums.h"

namespace vdnn::cuda {

// `Term` has kName, a type Sum, and Sum operator()(element).
template <class Term>
struct ColumnSums {
  static constexpr const char* kName = Term::kName;
  using Sum = typename Term::Sum;
  struct Shared {
    Sum lanes[kBlockThreads];
  };

  Term term;
  std::uint64_t samples = 0;
  std::uint64_t places = 0;  // of a sample
  std::uint64_t channels = 0;
  Sum* sums = nullptr;  // samples x channels x pieces()

  // width(): the number of channels that a block sums. lanes(): the number of places that it sums at once.
  VDNN_HOST_DEVICE std::uint64_t width() const { return smaller(channels, kBlockThreads); }
  VDNN_HOST_DEVICE std::uint64_t lanes() const { return kBlockThreads / width(); }
  VDNN_HOST_DEVICE std::uint64_t tiles() const { return divide_up(channels, width()); }
  VDNN_HOST_DEVICE std::uint64_t piece_places() const { return 64 * lanes(); }
  VDNN_HOST_DEVICE std::uint64_t pieces() const { return divide_up(places, piece_places()); }
  std::uint64_t blocks() const { return samples * pieces() * tiles(); }

  template <class Block>
  VDNN_HOST_DEVICE void operator()(Block& block, Shared& shared) const {
    const std::uint64_t tile = block.index() % tiles();
    const std::uint64_t piece = block.index() / tiles() % pieces();
    const std::uint64_t sample = block.index() / tiles() / pieces();
    const std::uint64_t begin = piece * piece_places();
    const std::uint64_t end = smaller(begin + piece_places(), places);
    const std::uint64_t width = this->width();
    const std::uint64_t lanes = this->lanes();
    block.each([&](std::uint32_t thread) {
      const std::uint64_t channel = tile * width + thread % width;
      Sum sum;
      if (channel < channels && thread < lanes * width) {
        for (std::uint64_t place = begin + thread / width; place < end; place += lanes) {
          sum.add(term((sample * places + place) * channels + channel));
        }
      }
      shared.lanes[thread] = sum;
    });
    block.each([&](std::uint32_t thread) {
      const std::uint64_t channel = tile * width + thread;
      if (thread < width && channel < channels) {
        Sum sum = shared.lanes[thread];
        for (std::uint64_t lane = 1; lane < lanes; ++lane) {
          sum.add(shared.lanes[lane * width + thread]);
        }
        sums[(sample * channels + channel) * pieces() + piece] = sum;
      }
    });
  }
};

}  // namespace vdnn::cuda
