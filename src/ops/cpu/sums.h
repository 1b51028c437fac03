#pragma once
// Sums of very many terms, in double and in an order that depends only on the number of terms. Terms are cut
// into pieces of a fixed size. A piece is summed into a fixed number of lanes, which fit into vector
// registers of any width. The lanes of a piece are added first, then the pieces. So neither the number of
// threads nor the instruction set changes a result.

#include <array>
#include <cstdint>

#include "src/ops/cpu/loops.h"

namespace vdnn::cpu {

inline constexpr std::uint64_t kTermsPerPiece = 16384;

// Workspace for the sums of all pieces; a single piece needs none.
inline std::uint64_t sum_workspace_bytes(std::uint64_t terms) {
  const std::uint64_t pieces = piece_count(terms, kTermsPerPiece);
  return pieces > 1 ? pieces * sizeof(double) : 0;
}

template <class Term>
double sum_piece(std::uint64_t begin, std::uint64_t end, const Term& term) {
  constexpr std::uint64_t kLanes = 8;
  std::array<double, kLanes> lanes{};
  std::uint64_t i = begin;
  for (; i + kLanes <= end; i += kLanes) {
#pragma omp simd
    for (std::uint64_t lane = 0; lane < kLanes; ++lane) {
      lanes[lane] += term(i + lane);
    }
  }
  for (std::uint64_t lane = 0; i < end; ++i, ++lane) {
    lanes[lane] += term(i);
  }
  double sum = 0;
  for (const double lane : lanes) {
    sum += lane;
  }
  return sum;
}

// Returns term(0) + ... + term(terms - 1). `workspace` has sum_workspace_bytes().
template <class Term>
double sum_terms(std::uint64_t terms, int threads, const AddressRange& workspace, const Term& term) {
  if (terms <= kTermsPerPiece) {
    return sum_piece(0, terms, term);
  }
  double* const partial = pointer_to<double>(workspace.begin);
  for_each_piece(terms, kTermsPerPiece, threads,
                 [&](std::uint64_t piece, std::uint64_t begin, std::uint64_t end) {
                   partial[piece] = sum_piece(begin, end, term);
                 });
  double sum = 0;
  for (std::uint64_t piece = 0; piece < piece_count(terms, kTermsPerPiece); ++piece) {
    sum += partial[piece];
  }
  return sum;
}

}  // namespace vdnn::cpu
