#pragma once
// Sums of rows of terms in double. A block sums a piece of a row: each thread sums terms with a stride, and a
// tree adds up the threads. A second launch then sums the pieces' sums as terms of a row.

#include <cstdint>

#include "src/ops/cuda/kernels/kernel.h"

namespace vdnn::cuda {

inline constexpr std::uint64_t kTermsPerPiece = 8192;

// `kCount` sums over the same terms.
template <std::uint32_t kCount>
struct Sums {
  double value[kCount] = {};

  VDNN_HOST_DEVICE void add(const Sums& other) {
    for (std::uint32_t i = 0; i < kCount; ++i) {
      value[i] += other.value[i];
    }
  }
};

// Adds up all lanes, one per thread, into lanes[0].
template <class Sum, class Block>
VDNN_HOST_DEVICE void fold_lanes(Block& block, Sum* lanes) {
  for (std::uint32_t half = kBlockThreads / 2; half > 0; half /= 2) {
    block.each([&](std::uint32_t thread) {
      if (thread < half) {
        lanes[thread].add(lanes[thread + half]);
      }
    });
  }
}

// lanes[0] = term(begin) + ... + term(end - 1).
template <class Sum, class Block, class Term>
VDNN_HOST_DEVICE void sum_in_block(Block& block, Sum* lanes, std::uint64_t begin, std::uint64_t end,
                                   const Term& term) {
  block.each([&](std::uint32_t thread) {
    Sum sum;
    for (std::uint64_t i = begin + thread; i < end; i += kBlockThreads) {
      sum.add(term(i));
    }
    lanes[thread] = sum;
  });
  fold_lanes(block, lanes);
}

// `Term` has kName, a type Sum (a Sums<>), and Sum operator()(row, index).
template <class Term>
struct RowSums {
  static constexpr const char* kName = Term::kName;
  using Sum = typename Term::Sum;
  struct Shared {
    Sum lanes[kBlockThreads];
  };

  Term term;
  std::uint64_t rows = 0;
  std::uint64_t length = 0;        // terms of a row
  std::uint64_t pieces = 1;        // per row
  std::uint64_t piece_length = 0;  // terms; the last piece may be shorter
  Sum* sums = nullptr;             // rows x pieces

  std::uint64_t blocks() const { return rows * pieces; }

  template <class Block>
  VDNN_HOST_DEVICE void operator()(Block& block, Shared& shared) const {
    const std::uint64_t row = block.index() / pieces;
    const std::uint64_t begin = block.index() % pieces * piece_length;
    sum_in_block(block, shared.lanes, begin, smaller(begin + piece_length, length),
                 [&](std::uint64_t i) { return term(row, i); });
    block.each([&](std::uint32_t thread) {
      if (thread == 0) {
        sums[block.index()] = shared.lanes[0];
      }
    });
  }
};

// Terms that are sums of pieces.
template <std::uint32_t kCount>
struct Partial {
  static constexpr const char* kName = "partial_sums";
  using Sum = Sums<kCount>;
  const Sum* sums = nullptr;  // rows x length
  std::uint64_t length = 0;

  VDNN_HOST_DEVICE Sum operator()(std::uint64_t row, std::uint64_t i) const { return sums[row * length + i]; }
};

}  // namespace vdnn::cuda
