// The text that shows the state of a stream pool to people.

#include <algorithm>
#include <array>
#include <map>
#include <string>

#include "vdnn/size.h"
#include "vdnn/stream_pool.h"

namespace vdnn {

namespace {

constexpr std::size_t kHolesShown = 8;

struct Sum {
  std::uint64_t pieces = 0;
  std::uint64_t bytes = 0;
  std::uint64_t largest = 0;

  void add(std::uint64_t more) {
    ++pieces;
    bytes += more;
    largest = std::max(largest, more);
  }
};

std::string line_of(const char* what, const Sum& sum) {
  return "  " + std::string(what) + ": " + std::to_string(sum.pieces) + ", " + format_size(sum.bytes) +
         (sum.pieces > 1 ? ", the largest " + format_size(sum.largest) : "") + "\n";
}

std::string picture_of(BlockKind kind, const std::vector<PoolPiece>& pieces) {
  std::map<PoolPiece::State, Sum> sums;
  std::vector<std::uint64_t> holes;
  Sum segments;
  std::uint64_t segment = 0;
  for (const PoolPiece& piece : pieces) {
    if (piece.kind != kind) {
      continue;
    }
    sums[piece.state].add(piece.range.bytes);
    if (piece.state == PoolPiece::State::kFree) {
      holes.push_back(piece.range.bytes);
    }
    if (piece.state != PoolPiece::State::kVacant) {
      segment += piece.range.bytes;
    } else if (segment > 0) {
      segments.add(segment);
      segment = 0;
    }
  }
  if (segment > 0) {
    segments.add(segment);
  }
  std::string text = std::string(to_string(kind)) + " blocks\n" + line_of("segments", segments) +
                     line_of("in use", sums[PoolPiece::State::kInUse]) +
                     line_of("in caches of streams", sums[PoolPiece::State::kCached]) +
                     line_of("free", sums[PoolPiece::State::kFree]);
  std::ranges::sort(holes, std::greater<>());
  for (std::size_t i = 0; i < std::min(holes.size(), kHolesShown); ++i) {
    text += (i == 0 ? "    of " : ", ") + format_size(holes[i]);
  }
  if (holes.size() > kHolesShown) {
    text += " and " + std::to_string(holes.size() - kHolesShown) + " smaller";
  }
  return text + (holes.empty() ? "" : "\n");
}

}  // namespace

std::string StreamPool::picture() const {
  const std::vector<PoolPiece> pieces = snapshot();
  const StreamPoolStatistics now = statistics();
  std::string text = name() + ": committed " + format_size(now.all.reserved.current) + ", in use " +
                     format_size(now.all.allocated.current) + " (asked for " +
                     format_size(now.all.requested.current) + "), at most committed " +
                     format_size(now.all.reserved.peak) + "\n";
  for (const BlockKind kind : kAllBlockKinds) {
    text += picture_of(kind, pieces);
  }
  return text;
}

}  // namespace vdnn
