#include "bench/replayed_pools.h"

#include <algorithm>
#include <string>

#include "vdnn/size.h"

namespace vdnn::bench {

namespace {

constexpr std::uint64_t kWithoutEnd = std::uint64_t{1} << 46U;

// The device that does nothing has the properties of a GPU.
DeviceProperties nothing() {
  return {.name = "nothing",
          .memory_bytes = kWithoutEnd,
          .budget_bytes = kWithoutEnd,
          .host_budget_bytes = kWithoutEnd,
          .granule_bytes = std::uint64_t{2} << 20U,
          .alignment_bytes = 512,
          .touches_memory = false};
}

}  // namespace

void PlainAllocation::allocate(std::uint64_t block, std::uint64_t bytes, std::uint32_t /*stream*/,
                               bool /*lasting*/) {
  constexpr std::uint64_t kUnit = 512;
  bytes_[block] = round_up(std::max<std::uint64_t>(bytes, 1), kUnit);
  reserved_ += bytes_[block];
}

void PlainAllocation::free(std::uint64_t block, std::uint32_t /*stream*/) {
  reserved_ -= bytes_.at(block);
  bytes_.erase(block);
}

ReplayedDevicePool::ReplayedDevicePool() : device_(nothing()), pool_(device_, {}) {}

void ReplayedDevicePool::allocate(std::uint64_t block, std::uint64_t bytes, std::uint32_t stream,
                                  bool /*lasting*/) {
  blocks_[block] = {.range = pool_.allocate(bytes, stream_of(stream)).value(), .used = {}};
}

void ReplayedDevicePool::use(std::uint64_t block, std::uint32_t stream) {
  blocks_.at(block).used.join(device_.submit(stream_of(stream), {}));
}

void ReplayedDevicePool::free(std::uint64_t block, std::uint32_t stream) {
  use(block, stream);
  const Block freed = blocks_.at(block);
  blocks_.erase(block);
  pool_.free(freed.range, freed.used);
}

StreamId ReplayedDevicePool::stream_of(std::uint32_t number) {
  const auto found = streams_.find(number);
  if (found != streams_.end()) {
    return found->second;
  }
  return streams_[number] = device_.create_stream(std::to_string(number));
}

ReplayedStreamPool::ReplayedStreamPool()
    : backend_(std::uint64_t{1} << 40U), pool_(backend_, {.ends_are_told = true}) {}

void ReplayedStreamPool::allocate(std::uint64_t block, std::uint64_t bytes, std::uint32_t stream,
                                  bool lasting) {
  const BlockLife life = lasting ? BlockLife::kPersistent : BlockLife::kTransient;
  addresses_[block] = pool_.allocate(bytes, stream_handle(stream), life).value().begin;
}

void ReplayedStreamPool::use(std::uint64_t block, std::uint32_t stream) {
  pool_.used_on(addresses_.at(block), stream_handle(stream));
}

void ReplayedStreamPool::free(std::uint64_t block, std::uint32_t stream) {
  const auto freed = addresses_.extract(block);
  pool_.used_on(freed.mapped(), stream_handle(stream));
  pool_.free(freed.mapped());
}

}  // namespace vdnn::bench
