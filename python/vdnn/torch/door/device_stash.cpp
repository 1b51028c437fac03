#include "device_stash.h"

#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "cpu_memory.h"
#include "gpu_figures.h"
#include "notice_log.h"
#include "python_lock.h"

namespace vdnn::door {
namespace {

// The most handles that one call returns; the caller calls again while the array is full.
constexpr std::size_t kBatch = 64;
using Handles = std::array<vdnn_stash_handle, kBatch>;

constexpr const char* kNobodyHoldsIt = "vdnn: the stash serves a tensor from memory that nobody holds";

std::uint64_t signature_of(const at::Tensor& tensor, std::uint64_t bytes) {
  std::uint64_t hash = bytes;
  const auto mix = [&hash](std::uint64_t value) {  // FNV-1a
    hash = (hash ^ value) * 1099511628211ULL;
  };
  mix(static_cast<std::uint64_t>(tensor.scalar_type()));
  for (const std::int64_t size : tensor.sizes()) {
    mix(static_cast<std::uint64_t>(size));
  }
  return hash;
}

// From PyTorch 2.10 on, a storage and its Python object hold each other.
template <class Storage>
bool is_held_by_its_python_object_alone(const Storage& storage) {
  if constexpr (requires { storage.pyobj_slot()->has_unique_reference(); }) {
    return storage.pyobj_slot()->has_unique_reference();
  } else {
    return false;
  }
}

// Identifies a counter: PyTorch has no function that compares two of them.
const void* address_of(const c10::VariableVersion& counter) {
  static_assert(sizeof(counter) == sizeof(const void*));
  const void* address = nullptr;
  std::memcpy(&address, &counter, sizeof(address));
  return address;
}

std::uint64_t not_negative(std::int64_t bytes) {
  return static_cast<std::uint64_t>(std::max<std::int64_t>(bytes, 0));
}

}  // namespace

Block::Block(const at::Tensor& tensor, void* stream_)
    : weak(tensor.storage().getWeakStorageImpl()),
      source(weak.lock()),
      allocator(source->allocator()),
      bytes(source->nbytes()),
      signature(signature_of(tensor, bytes)),
      stream(stream_),
      counter(torch::autograd::impl::version_counter(tensor)),
      version(static_cast<std::uint32_t>(tensor._version())) {
  if (allocator == nullptr) {  // foreign memory, for example NumPy's
    allocator = source->device().is_cuda() ? gpu_allocator() : c10::GetAllocator(source->device_type());
  }
}

bool Block::has_counter_of(const at::Tensor& tensor) const {
  return address_of(counter) == address_of(torch::autograd::impl::version_counter(tensor));
}

bool Block::is_held_by_others() const {
  if (!source) {
    return weak.use_count() > 0;
  }
  const std::size_t others = source.use_count() - 1;
  return others > 1 || (others == 1 && !is_held_by_its_python_object_alone(*source));
}

c10::intrusive_ptr<c10::StorageImpl> Block::held_by_others() const {
  if (source) {
    return is_held_by_others() ? source : c10::intrusive_ptr<c10::StorageImpl>();
  }
  return weak.lock();
}

c10::intrusive_ptr<c10::StorageImpl> Block::new_storage(std::uint64_t size_bytes) const {
  return c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), size_bytes, allocator,
                                               /*resizable=*/true);
}

DeviceStash::DeviceStash(const StashFunctions& functions, const vdnn_stash_options& options,
                         c10::Device device, const vdnn_door_pool& pool)
    : functions_(functions), device_(device), pool_(pool) {
  vdnn_stash_options own = options;
  if (device.is_cuda()) {
    own.device = device.index();
  }
  check(functions_.create(&own, &stash_));
  if (own.release_at_put != 0) {
    void* prefetch_stream = nullptr;
    check(functions_.streams(stash_, &offload_stream_, &prefetch_stream));
  }
}

void DeviceStash::check(vdnn_status status) const {
  TORCH_CHECK(status == VDNN_OK, "vdnn: ", functions_.last_error());
}

void* DeviceStash::current_stream() const {
  return device_.is_cuda() ? current_gpu_stream(device_) : nullptr;
}

std::optional<MemoryFigures> DeviceStash::memory() const {
  if (pool_.allocated == nullptr) {
    return gpu_memory(device_);
  }
  vdnn_allocator_figure found{};
  pool_.allocated(device_.index(), &found);
  return MemoryFigures{.current = found.current, .peak = found.peak, .allocated = found.added};
}

std::uint64_t DeviceStash::bytes_in_use() {
  if (device_.is_cpu()) {
    check(functions_.note_peak(stash_, not_negative(CpuMemory::take_recent_peak())));
    return not_negative(CpuMemory::bytes());
  }
  const std::optional<MemoryFigures> now = memory();
  if (!now) {
    return 0;
  }
  check(functions_.note_peak(stash_, recent_peak_.take(*now)));
  return now->current;
}

void DeviceStash::restart_peak() {
  if (device_.is_cpu()) {
    CpuMemory::restart_recent_peak();
  } else if (const std::optional<MemoryFigures> now = memory()) {
    recent_peak_.restart(*now);
  }
}

DeviceStash::Saved DeviceStash::save(const at::Tensor& tensor) {
  std::uint32_t answer = 0;
  Block* const block = add(tensor, answer);
  const bool left_at_once = offload_stream_ != nullptr && (answer & VDNN_STASH_LEAVES) != 0;
  if (left_at_once || (answer & VDNN_STASH_RELEASED) != 0) {
    const PythonFriendlyLock lock(mutex_);
    restart_peak();  // the freed sources count at this save, but not at the next event
  }
  return {.block = block, .has_notice = (answer & VDNN_STASH_NOTICE) != 0};
}

Block* DeviceStash::add(const at::Tensor& tensor, std::uint32_t& answer) {
  Trash trash;
  const PythonFriendlyLock lock(mutex_);
  void* const stream = current_stream();
  if (blocks_.empty() && device_.is_cuda()) {
    restart_peak();  // excludes the optimizer's peak, which offloading could not reduce
  }
  ++saves_;
  note_who_let_go();
  answer = put_what_nobody_holds(trash);
  const BlockIdentity identity{.storage = tensor.storage().unsafeGetStorageImpl(),
                               .version = static_cast<std::uint32_t>(tensor._version())};
  const auto [entry, is_new] = blocks_.try_emplace(identity, tensor, stream);
  Block& block = entry->second;
  if (!is_new && !block.has_counter_of(tensor)) {
    answer = follow(answer, stream, trash);
    return nullptr;
  }
  ++block.users;
  try {
    note_saver(block, tensor.storage().data_ptr());
    answer |= enter(block, tensor, trash);
    answer = follow(answer, stream, trash);
  } catch (...) {
    end_use(block, trash);
    throw;
  }
  return &block;
}

void DeviceStash::log_notice() {
  constexpr std::size_t kCapacity = 512;  // longer than any notice
  std::array<char, kCapacity> text{};
  std::uint64_t needed = 0;
  check(functions_.take_notice(stash_, text.data(), kCapacity, &needed));
  if (text.front() != '\0') {
    NoticeLog::write(text.data());
  }
}

std::uint32_t DeviceStash::enter(Block& block, const at::Tensor& tensor, Trash& trash) {
  if (block.puts > 0 || tensor.requires_grad()) {
    stop_deferring(block);
    return put(block, *tensor.storage().unsafeGetStorageImpl(), trash);
  }
  if (block.look_at == 0) {
    block.saved_at = saves_;
    defer(block);
  }
  return 0;
}

// Calls vdnn_stash_put() once for each save that the stash does not know.
std::uint32_t DeviceStash::put(Block& block, const c10::StorageImpl& storage, Trash& trash) {
  std::uint32_t answers = 0;
  while (block.puts < block.users) {
    std::uint32_t answer = 0;
    check(functions_.put(stash_, storage.data(), block.bytes, block.stream,
                         reinterpret_cast<std::uintptr_t>(&storage), block.version, block.signature,
                         bytes_in_use(), &block.handle, &answer));
    if (++block.puts == 1) {
      by_handle_[block.handle] = &block;
    }
    release_at_put(block, answer, trash);
    answers |= answer;
  }
  if ((answers & VDNN_STASH_WATCHED) != 0 && !block.is_watched) {
    watch(block);
  }
  return answers;
}

void DeviceStash::watch(Block& block) {
  if (!block.is_held_by_others()) {
    return;  // it was deferred until nobody else held it
  }
  watched_.push_back({.block = &block, .since = looks_, .look_at = looks_ + 1});
  block.is_watched = true;
  check(functions_.note_held(stash_, block.handle, 1));
}

void DeviceStash::note_who_let_go() {
  constexpr std::uint64_t kPartsOfTime = 64;
  ++looks_;
  std::erase_if(watched_, [this](Watched& watched) {
    Block& block = *watched.block;
    if (looks_ < watched.look_at) {
      return false;
    }
    block.is_watched = block.is_held_by_others();
    if (block.is_watched) {
      watched.look_at = looks_ + 1 + (looks_ - watched.since) / kPartsOfTime;
    } else {
      check(functions_.note_held(stash_, block.handle, 0));
    }
    return !block.is_watched;
  });
}

std::uint32_t DeviceStash::put_what_nobody_holds(Trash& trash) {
  std::uint32_t answers = 0;
  while (!deferred_.empty() && deferred_.begin()->first <= saves_) {
    Block& block = *deferred_.begin()->second;
    stop_deferring(block);
    if (block.is_held_by_others()) {
      defer(block);
    } else if (block.is_unchanged()) {
      answers |= put(block, *block.source, trash);
    }
  }
  return answers;
}

void DeviceStash::defer(Block& block) {
  constexpr std::uint64_t kPartsOfAge = 4;
  block.look_at = saves_ + 1 + (saves_ - block.saved_at) / kPartsOfAge;
  deferred_.emplace(block.look_at, &block);
}

void DeviceStash::stop_deferring(Block& block) {
  if (block.look_at != 0) {
    const auto [first, last] = deferred_.equal_range(std::exchange(block.look_at, 0));
    deferred_.erase(
        std::find_if(first, last, [&block](const auto& entry) { return entry.second == &block; }));
  }
}

c10::intrusive_ptr<c10::StorageImpl> DeviceStash::load(Block& block) {
  Trash trash;
  const PythonFriendlyLock lock(mutex_);
  if (block.puts == 0) {
    return block.source;
  }
  note_who_let_go();
  void* const stream = current_stream();
  c10::intrusive_ptr<c10::StorageImpl> held = block.held_by_others();
  std::uint32_t answer = 0;
  check(functions_.read(stash_, block.handle, stream, bytes_in_use(), held ? 1 : 0, &answer));
  if ((answer & VDNN_STASH_FETCHES) != 0) {
    fetch(block, stream);
  }
  if ((answer & VDNN_STASH_MISSING) != 0) {
    check(functions_.ready(stash_, block.handle, stream));
  }
  if ((answer & VDNN_STASH_IN_PLACE) != 0) {
    TORCH_CHECK(block.source || held, kNobodyHoldsIt);
    return block.source ? block.source : std::move(held);
  }
  TORCH_CHECK(block.target, kNobodyHoldsIt);
  trash.push_back(std::move(held));
  if (block.target_stream != stream) {  // the target's stream must not reuse the memory before this read
    record_on_current_stream(block.target->data_ptr(), device_);
  }
  return (answer & VDNN_STASH_LAST) != 0 ? std::move(block.target) : block.target;
}

void DeviceStash::drop(Block& block) {
  Trash trash;
  const PythonFriendlyLock lock(mutex_);
  end_use(block, trash);
}

void DeviceStash::end_use(Block& block, Trash& trash) {
  if (block.puts == block.users) {
    functions_.drop(stash_, block.handle);  // an error also drops the handle
    --block.puts;
  }
  if (--block.users == 0) {
    stop_deferring(block);
    if (block.is_watched) {
      std::erase_if(watched_, [&block](const Watched& watched) { return watched.block == &block; });
    }
    by_handle_.erase(block.handle);
    trash.push_back(std::move(block.source));
    trash.push_back(std::move(block.target));
    blocks_.erase({.storage = block.weak._unsafe_get_target(), .version = block.version});
  }
}

void DeviceStash::note_saver(Block& block, const c10::DataPtr& memory) {
  if (!device_.is_cuda()) {
    return;
  }
  const c10::Stream stream = current_gpu_stream_by_name(device_);
  if (std::find(block.savers.begin(), block.savers.end(), stream) != block.savers.end()) {
    return;
  }
  block.savers.push_back(stream);
  if (block.leaves) {
    record_on_stream(memory, stream);
  }
}

void DeviceStash::note_leaving(Block& block) {
  block.leaves = true;
  for (const c10::Stream stream : block.savers) {
    record_on_stream(block.source->data_ptr(), stream);
  }
}

void DeviceStash::release_at_put(Block& block, std::uint32_t answer, Trash& trash) {
  if ((answer & VDNN_STASH_VERDICT) != VDNN_STASH_LEAVES) {
    return;
  }
  note_leaving(block);
  if (offload_stream_ == nullptr) {
    return;
  }
  void* const memory =
      const_cast<void*>(block.source->data());  // mutable_data() would copy a copy-on-write storage
  if (pool_.get_base_allocation(memory, nullptr) != nullptr) {
    pool_.record_stream(memory, offload_stream_);
    trash.push_back(std::move(block.source));
  } else {
    check(functions_.hold(stash_, block.handle));
  }
}

std::uint32_t DeviceStash::follow(std::uint32_t answer, void* stream, Trash& trash) {
  if ((answer & VDNN_STASH_LEAVING) != 0) {
    answer |= let_leave(stream, trash);
  }
  if ((answer & VDNN_STASH_RELEASED) != 0) {
    release(stream, trash);
  }
  return answer;
}

std::uint32_t DeviceStash::let_leave(void* stream, Trash& trash) {
  std::uint32_t answers = 0;
  Handles handles;
  std::uint32_t count = kBatch;
  while (count == kBatch) {
    check(functions_.leaving(stash_, handles.data(), kBatch, &count));
    for (std::uint32_t i = 0; i < count; ++i) {
      Block& block = *by_handle_.at(handles[i]);
      trash.push_back(block.held_by_others());
      if (trash.back() || !block.is_unchanged()) {
        check(functions_.stay(stash_, block.handle));
        continue;
      }
      std::uint32_t answer = 0;
      check(functions_.leave(stash_, block.handle, stream, &answer));
      release_at_put(block, answer, trash);
      answers |= answer;
    }
  }
  return answers;
}

void DeviceStash::release(void* stream, Trash& trash) {
  Handles handles;
  std::uint32_t count = kBatch;
  while (count == kBatch) {
    check(functions_.released(stash_, stream, handles.data(), kBatch, &count));
    for (std::uint32_t i = 0; i < count; ++i) {
      if (const auto found = by_handle_.find(handles[i]); found != by_handle_.end()) {
        trash.push_back(std::move(found->second->source));
      }
    }
  }
}

void DeviceStash::fetch(Block& reading, void* stream) {
  const c10::DeviceGuard on_device(device_);  // the reader's thread may have a different current device
  Handles handles;
  std::array<std::uint64_t, kBatch> sizes;
  std::uint32_t count = kBatch;
  while (count == kBatch) {
    check(functions_.fetches(stash_, reading.handle, handles.data(), sizes.data(), kBatch, &count));
    for (std::uint32_t i = 0; i < count; ++i) {
      Block& block = *by_handle_.at(handles[i]);
      try {
        block.target = block.new_storage(block.bytes);
      } catch (const c10::OutOfMemoryError&) {
        if (&block == &reading) {
          throw;
        }
        return;  // this tensor and the remaining ones come back when they are read
      }
      block.target_stream = stream;
      check(functions_.fetch(stash_, block.handle, block.target->mutable_data(), stream));
    }
  }
}

}  // namespace vdnn::door
