#pragma once
// Sums of rows of terms as launches: of the pieces of each row, and, where there are several, of what those
// come to.

#include <cstdint>

#include "src/ops/cuda/launcher.h"
#include "src/ops/cuda/workspace.h"

namespace vdnn::cuda {

// Where sums of rows lie, and those of their pieces.
template <std::uint32_t kCount>
struct RowSumsLayout {
  std::uint64_t rows;
  std::uint64_t length;
  std::uint64_t pieces;
  Sums<kCount>* sums;     // a row
  Sums<kCount>* partial;  // rows x pieces; of single pieces the sums

  RowSumsLayout(Workspace& workspace, std::uint64_t row_count, std::uint64_t row_length)
      : rows(row_count),
        length(row_length),
        pieces(divide_up(row_length, kTermsPerPiece)),
        sums(workspace.take<Sums<kCount>>(rows)),
        partial(pieces > 1 ? workspace.take<Sums<kCount>>(checked_multiply(rows, pieces)) : sums) {}
};

// Of rows of `length` sums.
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
