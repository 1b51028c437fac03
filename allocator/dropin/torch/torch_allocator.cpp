#include "allocator/dropin/torch/torch_allocator.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <string>

#include "allocator/dropin/c_abi.h"
#include "allocator/dropin/c_status.h"
#include "vdnn/error.h"

namespace vdnn {

namespace {

constexpr TorchPoolId kDefaultPool{0, 0};

// Like guarded(), for a body that returns a status itself.
template <class Body>
vdnn_status guarded_status(const Body& body) noexcept {
  vdnn_status status = VDNN_OK;
  const vdnn_status thrown = guarded([&] { status = body(); });
  return thrown == VDNN_OK ? status : thrown;
}

enum class Vacancy : std::uint8_t { kInUse, kCached, kEmpty };

Vacancy vacancy_of(vdnn_allocator* allocator) {
  if (allocator == nullptr) {
    return Vacancy::kEmpty;
  }
  vdnn_allocator_statistics statistics{.version = VDNN_ALLOCATOR_VERSION};
  if (vdnn_allocator_get_statistics(allocator, &statistics) != VDNN_OK || statistics.all.blocks.current > 0) {
    return Vacancy::kInUse;
  }
  return statistics.all.reserved.current > 0 ? Vacancy::kCached : Vacancy::kEmpty;
}

[[noreturn]] void refuse_block() {
  throw InvalidArgument("this address belongs to no pool");
}

}  // namespace

void TorchAllocator::init(int devices) noexcept {
  const std::lock_guard lock(mutex_);
  devices_ = devices;
}

TorchAllocator::Gpu& TorchAllocator::gpu(int device) {
  const std::lock_guard lock(mutex_);
  if (device < 0 || (devices_ >= 0 && device >= devices_)) {
    throw InvalidArgument("there is no GPU " + std::to_string(device));
  }
  std::unique_ptr<Gpu>& found = gpus_[device];
  if (found == nullptr) {
    found = std::make_unique<Gpu>();
  }
  return *found;
}

std::vector<TorchAllocator::Gpu*> TorchAllocator::gpus() {
  const std::lock_guard lock(mutex_);
  std::vector<Gpu*> all;
  all.reserve(gpus_.size());
  for (const auto& [device, gpu] : gpus_) {
    if (gpu != nullptr) {
      all.push_back(gpu.get());
    }
  }
  return all;
}

void TorchAllocator::make_allocator(Gpu& gpu, int device, Pool& pool) {
  if (pool.allocator != nullptr) {
    return;
  }
  std::unique_ptr<PoolBackend> backend = make_backend_(device);
  vdnn_allocator_options options;
  vdnn_allocator_options_init(&options, VDNN_ALLOCATOR_VERSION);
  options.budget_bytes = gpu.budget_bytes.value_or(
      static_cast<std::uint64_t>(gpu.fraction * static_cast<double>(backend->properties().memory_bytes)));
  options.on_exhausted = [](void* exhausted, std::uint64_t) {
    return trim(*static_cast<Gpu*>(exhausted)) ? 1 : 0;
  };
  options.user_data = &gpu;
  vdnn_allocator* made = nullptr;
  if (create_allocator(std::move(backend), &options, &made) != VDNN_OK) {
    throw DeviceError(vdnn_last_error());
  }
  pool.allocator.reset(made);
}

std::shared_ptr<TorchAllocator::Pool> TorchAllocator::shared_pool(Gpu& gpu, int device) {
  std::shared_ptr<Pool> pool = find_or_add(gpu, kDefaultPool);
  make_allocator(gpu, device, *pool);
  return pool;
}

std::shared_ptr<TorchAllocator::Pool> TorchAllocator::pool_for(int device, void* stream) {
  Gpu& of = gpu(device);
  const std::lock_guard lock(of.mutex);
  const auto own = std::find_if(of.pools.rbegin(), of.pools.rend(),
                                [&](const auto& pool) { return pool->filter && pool->filter(stream); });
  if (own == of.pools.rend()) {
    return shared_pool(of, device);
  }
  make_allocator(of, device, **own);
  return *own;
}

std::shared_ptr<TorchAllocator::Pool> TorchAllocator::owner_of(const void* block) {
  for (Gpu* const gpu : gpus()) {
    const std::lock_guard lock(gpu->mutex);
    for (const std::shared_ptr<Pool>& pool : gpu->pools) {
      int owns = 0;
      if (pool->allocator != nullptr && vdnn_allocator_owns(pool->allocator.get(), block, &owns) == VDNN_OK &&
          owns == 1) {
        return pool;
      }
    }
  }
  return nullptr;
}

std::shared_ptr<TorchAllocator::Pool> TorchAllocator::find(Gpu& gpu, TorchPoolId id) {
  const auto found = std::ranges::find_if(gpu.pools, [&](const auto& pool) { return pool->id == id; });
  return found == gpu.pools.end() ? nullptr : *found;
}

std::shared_ptr<TorchAllocator::Pool> TorchAllocator::find_or_add(Gpu& gpu, TorchPoolId id) {
  std::shared_ptr<Pool> pool = find(gpu, id);
  if (pool == nullptr) {
    pool = std::make_shared<Pool>();
    pool->id = id;
    gpu.pools.push_back(pool);
  }
  return pool;
}

// Returns whether anything was given back.
bool TorchAllocator::trim(Gpu& gpu) {
  std::vector<std::shared_ptr<Pool>> pools;
  {
    const std::lock_guard lock(gpu.mutex);
    std::ranges::copy_if(gpu.pools, std::back_inserter(pools),
                         [](const auto& pool) { return pool->allocator != nullptr; });
  }
  std::uint64_t all = 0;
  for (const std::shared_ptr<Pool>& pool : pools) {
    std::uint64_t released = 0;
    vdnn_allocator_trim(pool->allocator.get(), 0, &released);
    all += released;
  }
  return all > 0;
}

bool TorchAllocator::is_unused(const std::shared_ptr<Pool>& pool) {
  // A thread that holds another reference may be about to allocate from the pool.
  const bool in_hand = pool.use_count() > 1;
  return pool->id != kDefaultPool && pool->uses == 0 && !in_hand;
}

std::vector<std::shared_ptr<TorchAllocator::Pool>> TorchAllocator::cached_unused(Gpu& gpu) {
  std::vector<std::shared_ptr<Pool>> cached;
  const std::lock_guard lock(gpu.mutex);
  std::ranges::copy_if(gpu.pools, std::back_inserter(cached), [](const auto& pool) {
    return is_unused(pool) && vacancy_of(pool->allocator.get()) == Vacancy::kCached;
  });
  return cached;
}

// Trims and destroys pools without the lock: both may wait for the GPU, and other threads can allocate and
// free meanwhile.
void TorchAllocator::drop_unused(Gpu& gpu) {
  std::vector<std::shared_ptr<Pool>> trimmed = cached_unused(gpu);
  for (const std::shared_ptr<Pool>& pool : trimmed) {
    vdnn_allocator_trim(pool->allocator.get(), 0, nullptr);
  }
  std::vector<std::shared_ptr<Pool>> ended;
  const std::lock_guard lock(gpu.mutex);
  trimmed.clear();  // so that is_unused() counts no references of this function
  // If the device has refused to take memory back, the pool stays until the next attempt: a refusal in the
  // pool's destructor would leak the memory.
  const auto first = std::stable_partition(gpu.pools.begin(), gpu.pools.end(), [](const auto& pool) {
    return !is_unused(pool) || vacancy_of(pool->allocator.get()) != Vacancy::kEmpty;
  });
  ended.assign(std::make_move_iterator(first), std::make_move_iterator(gpu.pools.end()));
  gpu.pools.erase(first, gpu.pools.end());
}

void* TorchAllocator::allocate(std::int64_t bytes, int device, void* stream, vdnn_status* status) noexcept {
  void* block = nullptr;
  const vdnn_status found = guarded_status([&] {
    if (bytes < 0) {
      throw InvalidArgument("a block cannot have " + std::to_string(bytes) + " bytes");
    }
    const std::shared_ptr<Pool> pool = pool_for(device, stream);
    return vdnn_allocator_allocate(pool->allocator.get(), static_cast<std::uint64_t>(bytes), stream,
                                   VDNN_TRANSIENT, &block);
  });
  if (status != nullptr) {
    *status = found;
  }
  return block;
}

void TorchAllocator::give_back(void* block) noexcept {
  guarded_status([&] {
    if (block == nullptr) {
      return VDNN_OK;
    }
    std::shared_ptr<Pool> pool = owner_of(block);
    if (pool == nullptr) {
      refuse_block();
    }
    const vdnn_status readers = record_missed_readers(*pool, block);
    if (readers != VDNN_OK && readers != VDNN_INVALID_ARGUMENT) {
      return readers;
    }
    // If the pool refuses the reader again, for example because the stream no longer exists, work on that
    // stream may still use the block.
    const vdnn_status status = readers == VDNN_OK
                                   ? vdnn_allocator_free(pool->allocator.get(), block)
                                   : vdnn_allocator_free_unordered(pool->allocator.get(), block);
    if (status == VDNN_OK) {
      forget_missed_readers(block);
    }
    const bool of_a_graph = pool->id != kDefaultPool;
    pool.reset();
    if (of_a_graph) {
      for (Gpu* const gpu : gpus()) {
        drop_unused(*gpu);
      }
    }
    return status;
  });
}

void TorchAllocator::used_on(void* block, void* stream) noexcept {
  guarded_status([&] {
    if (block == nullptr) {
      return VDNN_OK;
    }
    const std::shared_ptr<Pool> pool = owner_of(block);
    if (pool == nullptr) {
      refuse_block();
    }
    const vdnn_status status = vdnn_allocator_used_on(pool->allocator.get(), block, stream);
    std::uint64_t bytes = 0;
    if (status != VDNN_OK && vdnn_allocator_block_bytes(pool->allocator.get(), block, &bytes) == VDNN_OK) {
      const std::lock_guard lock(readers_mutex_);
      missed_readers_[block].push_back(stream);
    }
    return status;
  });
}

vdnn_status TorchAllocator::record_missed_readers(Pool& pool, void* block) {
  const std::lock_guard lock(readers_mutex_);
  const auto missed = missed_readers_.find(block);
  if (missed == missed_readers_.end()) {
    return VDNN_OK;
  }
  for (void* const stream : missed->second) {
    const vdnn_status status = vdnn_allocator_used_on(pool.allocator.get(), block, stream);
    if (status != VDNN_OK) {
      return status;
    }
  }
  return VDNN_OK;
}

void TorchAllocator::forget_missed_readers(void* block) {
  const std::lock_guard lock(readers_mutex_);
  missed_readers_.erase(block);
}

void* TorchAllocator::base_of(void* block, std::size_t* bytes) noexcept {
  std::uint64_t found = 0;
  const vdnn_status status = guarded_status([&] {
    const std::shared_ptr<Pool> pool = owner_of(block);
    if (pool == nullptr) {
      refuse_block();
    }
    return vdnn_allocator_block_bytes(pool->allocator.get(), block, &found);
  });
  if (bytes != nullptr) {
    *bytes = found;
  }
  return status == VDNN_OK ? block : nullptr;
}

void TorchAllocator::empty_caches() noexcept {
  guarded_status([&] {
    for (Gpu* const gpu : gpus()) {
      trim(*gpu);
      drop_unused(*gpu);
    }
    return VDNN_OK;
  });
}

template <class Change>
vdnn_status TorchAllocator::change_budget(int device, const Change& change) noexcept {
  return guarded_status([&] {
    Gpu& of = gpu(device);
    const std::lock_guard lock(of.mutex);
    if (std::ranges::any_of(of.pools, [](const auto& pool) { return pool->allocator != nullptr; })) {
      throw InvalidArgument("the budget of GPU " + std::to_string(device) +
                            " cannot change after its first block");
    }
    change(of);
    return VDNN_OK;
  });
}

void TorchAllocator::set_memory_fraction(double fraction, int device) noexcept {
  change_budget(device, [&](Gpu& of) {
    if (!(fraction > 0 && fraction <= 1)) {
      throw InvalidArgument("a fraction of " + std::to_string(fraction) +
                            " of the memory: use more than 0, at most 1");
    }
    of.fraction = fraction;
  });
}

vdnn_status TorchAllocator::set_budget(std::uint64_t bytes, int device) noexcept {
  return change_budget(device, [&](Gpu& of) {
    if (bytes == 0) {
      throw InvalidArgument("a budget cannot be 0 bytes");
    }
    of.budget_bytes = bytes;
  });
}

void TorchAllocator::begin(int device, TorchPoolId id, TorchStreamFilter filter) noexcept {
  guarded_status([&] {
    if (id == kDefaultPool || !filter) {
      throw InvalidArgument("a pool other than the default one needs a number and a filter of streams");
    }
    Gpu& of = gpu(device);
    const std::lock_guard lock(of.mutex);
    const std::shared_ptr<Pool> pool = find_or_add(of, id);
    ++pool->uses;
    pool->filter = std::move(filter);
    make_allocator(of, device, *pool);
    return VDNN_OK;
  });
}

void TorchAllocator::end(int device, TorchPoolId id) noexcept {
  guarded_status([&] {
    Gpu& of = gpu(device);
    const std::lock_guard lock(of.mutex);
    const std::shared_ptr<Pool> pool = find(of, id);
    if (pool == nullptr || !pool->filter) {
      throw InvalidArgument("there is no such pool, or no allocation to it has begun");
    }
    pool->filter = nullptr;
    return VDNN_OK;
  });
}

void TorchAllocator::release(int device, TorchPoolId id) noexcept {
  guarded_status([&] {
    Gpu& of = gpu(device);
    {
      const std::lock_guard lock(of.mutex);
      const std::shared_ptr<Pool> pool = find(of, id);
      if (pool == nullptr || pool->uses == 0) {
        throw InvalidArgument("there is no such pool, or it was released already");
      }
      --pool->uses;
    }
    drop_unused(of);
    return VDNN_OK;
  });
}

vdnn_allocator_figure TorchAllocator::allocated(int device) noexcept {
  vdnn_allocator_figure sum{};
  guarded_status([&] {
    Gpu& of = gpu(device);
    const std::lock_guard lock(of.mutex);
    for (const std::shared_ptr<Pool>& pool : of.pools) {
      vdnn_allocator_statistics found{.version = VDNN_ALLOCATOR_VERSION};
      if (pool->allocator != nullptr &&
          vdnn_allocator_get_statistics(pool->allocator.get(), &found) == VDNN_OK) {
        sum.current += found.all.allocated.current;
        sum.peak += found.all.allocated.peak;
        sum.added += found.all.allocated.added;
        sum.removed += found.all.allocated.removed;
      }
    }
    return VDNN_OK;
  });
  return sum;
}

void TorchAllocator::reset_peaks(int device) noexcept {
  guarded_status([&] {
    Gpu& of = gpu(device);
    const std::lock_guard lock(of.mutex);
    for (const std::shared_ptr<Pool>& pool : of.pools) {
      if (pool->allocator != nullptr) {
        vdnn_allocator_reset_peaks(pool->allocator.get());
      }
    }
    return VDNN_OK;
  });
}

vdnn_status TorchAllocator::statistics(int device, vdnn_allocator_statistics* statistics) noexcept {
  return guarded_status([&] {
    Gpu& of = gpu(device);
    const std::lock_guard lock(of.mutex);
    return vdnn_allocator_get_statistics(shared_pool(of, device)->allocator.get(), statistics);
  });
}

}  // namespace vdnn
