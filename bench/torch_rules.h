#pragma once
// The placement rules of PyTorch's caching allocator, on offsets alone, as in its sources of 2.5 to 2.9
// (c10/cuda/CUDACachingAllocator.cpp) with default settings:
//
//  * Sizes are rounded up to 512 bytes. Requests of up to 1 MiB are small.
//  * A free block serves only the stream that first allocated it, and only requests of its kind (small or
//    large). The smallest block that fits is used; among equal ones, the block at the lowest address.
//  * Default segments: 2 MiB for small requests, 20 MiB for large requests below 10 MiB, and for larger ones
//    the request rounded up to 2 MiB. The rest of a small block is always split off, the rest of a large
//    block only if it is more than 1 MiB. Neighbours merge within their segment.
//  * Expandable segments: one for each stream and kind, which grows at its end by 2 MiB (small) or 20 MiB
//    (large). The free block at the end is used if no other block fits. Any rest is split off.
//
// The model favours PyTorch. Memory is unlimited. A block that other streams used is free for its own stream
// at once, while PyTorch would wait for events.

#include <cstdint>
#include <map>
#include <set>
#include <tuple>
#include <unordered_map>

#include "bench/replayed_allocator.h"

namespace vdnn::bench {

enum class TorchSegments : std::uint8_t { kFixed, kExpandable };

class TorchRules final : public ReplayedAllocator {
 public:
  explicit TorchRules(TorchSegments segments) : expandable_(segments == TorchSegments::kExpandable) {}

  void allocate(std::uint64_t block, std::uint64_t bytes, std::uint32_t stream, bool lasting) override;
  void use(std::uint64_t, std::uint32_t) override {}
  void free(std::uint64_t block, std::uint32_t stream) override;
  std::uint64_t reserved_bytes() const override { return reserved_; }

 private:
  struct Pool;
  struct Segment {
    Pool* pool = nullptr;
    std::uint64_t bytes = 0;
    std::map<std::uint64_t, std::uint64_t> free;  // offset to bytes
  };
  using FreeBlock = std::tuple<std::uint64_t, std::size_t, std::uint64_t>;  // bytes, segment, offset
  // The free blocks of one stream and kind.
  struct Pool {
    bool small = false;
    std::set<FreeBlock> free;
    std::size_t expandable_segment = kNone;
  };
  struct Block {
    std::size_t segment = 0;
    std::uint64_t offset = 0;
    std::uint64_t bytes = 0;
  };
  static constexpr std::size_t kNone = ~std::size_t{0};

  Block take(Pool& pool, std::uint64_t bytes);
  std::set<FreeBlock>::iterator find(Pool& pool, std::uint64_t bytes) const;
  FreeBlock grow(Pool& pool, std::uint64_t bytes);
  std::size_t add_segment(Pool& pool, std::uint64_t bytes);
  bool is_split(const Pool& pool, std::uint64_t rest) const;
  void enlist(std::size_t segment, std::uint64_t offset, std::uint64_t bytes);
  void unlist(std::size_t segment, std::uint64_t offset, std::uint64_t bytes);

  bool expandable_;
  std::map<std::pair<std::uint32_t, bool>, Pool> pools_;  // by stream, and whether the kind is small
  std::map<std::size_t, Segment> segments_;
  std::unordered_map<std::uint64_t, Block> blocks_;
  std::uint64_t reserved_ = 0;
};

}  // namespace vdnn::bench
