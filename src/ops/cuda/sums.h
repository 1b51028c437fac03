#pragma once
// Launches sums of rows of terms. The first launch sums each piece of a row. If rows have several pieces, a
// second launch adds up their sums.

#include <cstdint>

#include "src/ops/cuda/launcher.h"
#include "src/ops/cuda/workspace.h"

namespace vdnn::cuda {

// The places in the workspace for the sums of rows and of their pieces.
template <std::uint32_t kCount>
struct RowSumsLayout {
  std::uint64_t rows;
  std::uint64_t length;
  std::uint64_t pieces;
  Sums<kCount>* sums;     // one per row
  Sums<kCount>* partial;  // rows x pieces; equal to `sums` if a row has one piece

  RowSumsLayout(Workspace& workspace, std::uint64_t row_count, std::uint64_t row_length)
      : rows(row_count),
        length(row_length),
        pieces(divide_up(row_length, kTermsPerPiece)),
        sums(workspace.take<Sums<kCount>>(rows)),
        partial(pieces > 1 ? workspace.take<Sums<kCount>>(checked_multiply(rows, pieces)) : sums) {}
};

// Adds up rows of `length` sums.
template <std::uint32_t kCount>
void launch_partial_sums(const Launcher& launcher, const Sums<kCount>* partial, std::uint64_t rows,
                         std::uint64_t length, Sums<kCount>* sums) {
  launcher.launch(RowSums<Partial<kCount>>{.term = {.sums = partial, .length = length},
                                           .rows = rows,
                                           .length = length,
                                           .pieces = 1,
                                           .piece_length = length,
                                           .sums = sums});
}

template <class Term, std::uint32_t kCount>
void launch_row_sums(const Launcher& launcher, const Term& term, const RowSumsLayout<kCount>& layout) {
  launcher.launch(RowSums<Term>{.term = term,
                                .rows = layout.rows,
                                .length = layout.length,
                                .pieces = layout.pieces,
                                .piece_length = kTermsPerPiece,
                                .sums = layout.partial});
  if (layout.pieces > 1) {
    launch_partial_sums(launcher, layout.partial, layout.rows, layout.pieces, layout.sums);
  }
}

}  // namespace vdnn::cuda
