// The cost of a pair of allocate and free for the submitting thread: in the device pool on a device that does
// nothing, in the pool's bookkeeping of offsets alone, and in allocators of ordinary memory.

#include <benchmark/benchmark.h>

#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory_resource>
#include <optional>
#include <vector>

#include "allocator/tlsf.h"
#include "bench/null_device.h"
#include "bench/side_by_side.h"
#include "src/base/random.h"
#include "vdnn/device_pool.h"
#include "vdnn/size.h"

namespace vdnn::bench {
namespace {

constexpr int kPairs = 1000;
constexpr std::uint64_t kAlignment = 256;
constexpr std::uint64_t kBudget = std::uint64_t{1} << 40;
constexpr std::uint64_t kGranule = 2 << 20;

double nanoseconds_a_pair(double seconds) {
  return seconds * 1e9 / kPairs;
}

// A pool with two streams, both with a submission.
class PoolOnNothing {
 public:
  PoolOnNothing() {
    for (int i = 0; i < 2; ++i) {
      device.submit(device.create_stream("stream"), {});
    }
  }

  AddressRange allocate(std::uint64_t bytes) { return pool.allocate(bytes, 0).value(); }
  void free(AddressRange block) { pool.free(block, used_); }

  NullDevice device{{.name = "nothing",
                     .budget_bytes = kBudget,
                     .host_budget_bytes = kBudget,
                     .granule_bytes = kGranule,
                     .alignment_bytes = kAlignment,
                     .touches_memory = false}};
  DevicePool pool{device, {}};

 private:
  const Frontier used_{Point{.stream = 0, .count = 1}};
};

// The other contenders, with the two functions of PoolOnNothing.
class TlsfAlone {
 public:
  AddressRange allocate(std::uint64_t bytes) {
    std::optional<Tlsf::Block> block = blocks_.allocate(bytes, used_);
    if (!block) {
      blocks_.grow(round_up(blocks_.missing(bytes), kGranule));
      block = blocks_.allocate(bytes, used_);
    }
    return {.begin = block->offset, .bytes = bytes};
  }
  void free(AddressRange block) { blocks_.free(block.begin, block.bytes, used_); }

 private:
  const Frontier used_{Point{.stream = 0, .count = 1}};
  Tlsf blocks_{kAlignment};
};

AddressRange range_at(const void* address, std::uint64_t bytes) {
  return {.begin = reinterpret_cast<std::uintptr_t>(address), .bytes = bytes};
}

class Malloc {
 public:
  AddressRange allocate(std::uint64_t bytes) { return range_at(std::malloc(bytes), bytes); }
  void free(AddressRange block) { std::free(pointer_to<void>(block.begin)); }
};

template <class Resource>
class Pmr {
 public:
  AddressRange allocate(std::uint64_t bytes) {
    return range_at(resource_.allocate(bytes, kAlignment), bytes);
  }
  void free(AddressRange block) {
    resource_.deallocate(pointer_to<void>(block.begin), block.bytes, kAlignment);
  }

 private:
  Resource resource_{std::pmr::pool_options{.largest_required_pool_block = 1 << 22}};
};

// Allocates and frees one block of one size repeatedly.
template <class Pool>
class OneSize {
 public:
  void operator()() {
    for (int i = 0; i < kPairs; ++i) {
      const AddressRange block = pool_.allocate(1 << 20);
      benchmark::DoNotOptimize(block.begin);
      pool_.free(block);
    }
  }

 private:
  Pool pool_;
};

// With 1,000 live blocks: each pair frees a random block and allocates one of another size.
template <class Pool>
class RandomSizes {
 public:
  RandomSizes() {
    for (AddressRange& block : live_) {
      block = pool_.allocate(size());
    }
  }
  ~RandomSizes() {
    for (const AddressRange& block : live_) {
      pool_.free(block);
    }
  }
  RandomSizes(const RandomSizes&) = delete;
  RandomSizes& operator=(const RandomSizes&) = delete;

  void operator()() {
    for (int i = 0; i < kPairs; ++i) {
      AddressRange& block = live_[random_.below(live_.size())];
      pool_.free(block);
      block = pool_.allocate(size());
    }
  }

 private:
  // A uniform size from one byte to a random power of two, 256 bytes to 8 MiB.
  std::uint64_t size() { return 1 + random_.below(std::uint64_t{1} << (8 + random_.below(16))); }

  Pool pool_;
  SplitMix64 random_{1};
  std::vector<AddressRange> live_{1000};
};

template <template <class> class Work>
void pairs(benchmark::State& state) {
  Work<PoolOnNothing> device_pool;
  Work<TlsfAlone> tlsf;
  Work<Malloc> malloc;
  Work<Pmr<std::pmr::unsynchronized_pool_resource>> unsynchronized;
  Work<Pmr<std::pmr::synchronized_pool_resource>> synchronized;
  side_by_side(state,
               {{"device pool ns", std::ref(device_pool)},
                {"tlsf ns", std::ref(tlsf)},
                {"malloc ns", std::ref(malloc)},
                {"pmr unsynchronized ns", std::ref(unsynchronized)},
                {"pmr synchronized ns", std::ref(synchronized)}},
               nanoseconds_a_pair);
}
BENCHMARK_TEMPLATE(pairs, OneSize)->Name("device_pool/reuse_at_once")->UseManualTime();
BENCHMARK_TEMPLATE(pairs, RandomSizes)->Name("device_pool/random_sizes")->UseManualTime();

// Passes a block between two streams, so that each allocation makes its stream wait for the other stream.
// Compares the cost with that of the submissions alone.
void reuse_after_wait(benchmark::State& state) {
  PoolOnNothing rig;
  const auto pass_on = [&] {
    for (StreamId pair = 0; pair < kPairs; ++pair) {
      const StreamId stream = pair % 2;
      const AddressRange block = rig.pool.allocate(1 << 20, stream).value();
      rig.pool.free(block, Frontier(rig.device.submit(stream, {})));
    }
  };
  const auto submit = [&] {
    for (StreamId pair = 0; pair < kPairs; ++pair) {
      rig.device.submit(pair % 2, {});
    }
  };
  side_by_side(state, {{"with a submission ns", pass_on}, {"submission ns", submit}}, nanoseconds_a_pair);
}
BENCHMARK(reuse_after_wait)->Name("device_pool/reuse_after_wait")->UseManualTime();

}  // namespace
}  // namespace vdnn::bench
