#include <algorithm>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <stop_token>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "allocator/last_use.h"
#include "src/data/batch_order.h"
#include "vdnn/dataset.h"
#include "vdnn/error.h"
#include "vdnn/size.h"

namespace vdnn {

namespace {

// One slot of the ring. A slot is in one of four places: in the loader's `free_`, with the loader's thread,
// in the loader's `ready_`, or with the caller.
struct Slot {
  AddressRange block;  // images, then targets
  Frontier copied;     // after the copy of the batch; the thread waits for it before it overwrites the block
  bool with_caller = false;
  std::uint64_t number = 0;  // number of the batch that the caller has
};

// The frontier after everything that has been submitted to the device.
Frontier everything(const Device& device) {
  Frontier result;
  for (std::size_t stream = 0; stream < device.stream_count(); ++stream) {
    result.join(device.frontier(static_cast<StreamId>(stream)));
  }
  return result;
}

// The memory of the ring. If the constructor cannot allocate all slots, it frees the allocated slots and
// throws.
class Ring {
 public:
  // Delegates to another constructor, so that the destructor runs and frees the allocated slots if this
  // constructor fails.
  Ring(Device& device, PinnedPool& pool, std::uint32_t slots, std::uint64_t slot_bytes) : Ring(device, pool) {
    slots_.reserve(slots);
    for (std::uint32_t i = 0; i < slots; ++i) {
      const std::optional<AddressRange> block = pool_.allocate_for_host(slot_bytes);
      if (!block) {
        throw OutOfMemory("page-locked memory for batch " + std::to_string(i + 1) + " of " +
                              std::to_string(slots) + " loaded ahead",
                          pool_.shortage(slot_bytes));
      }
      slots_.push_back({.block = *block, .copied = {}});
    }
  }
  ~Ring() {
    for (const Slot& slot : slots_) {
      try {
        // If the caller still has the batch, any copy of it has been submitted already.
        pool_.free(slot.block, slot.with_caller ? everything(device_) : slot.copied);
      } catch (...) {
        // If there is no host memory to store the frontier of the block's last use, the block stays in use
        // until the pool is destroyed.
      }
    }
  }
  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;

  std::vector<Slot>& slots() { return slots_; }

 private:
  Ring(Device& device, PinnedPool& pool) : device_(device), pool_(pool) {}

  Device& device_;
  PinnedPool& pool_;
  std::vector<Slot> slots_;
};

std::uint64_t checked_places(const BatchOrder& order) {
  order.batches_per_epoch();  // throws for an invalid order
  return static_cast<std::uint64_t>(order.part());
}

}  // namespace

class BatchLoader::Impl {
 public:
  Impl(Device& device, PinnedPool& pool, const Dataset& data, const BatchOrder& order, std::uint64_t first,
       std::uint64_t count, std::uint32_t slots)
      : device_(device),
        data_(data),
        places_(checked_places(order)),
        sample_elements_(element_count(data.sample_dims())),
        image_bytes_(checked_multiply(places_, checked_multiply(sample_elements_, sizeof(float)))),
        sample_targets_(element_count(data.target_dims())),
        target_bytes_(checked_multiply(places_, checked_multiply(sample_targets_, sizeof(std::int32_t)))),
        end_(checked_add(first, count)),
        next_(first),
        order_(order),
        cursor_(order),
        ring_(device, pool, slots, checked_add(image_bytes_, target_bytes_)) {
    for (std::uint32_t slot = 0; slot < slots; ++slot) {
      free_.push_back(slot);
    }
    ready_.reserve(slots);
    try {
      thread_ = std::jthread([this, first](const std::stop_token& stop) { run(stop, first); });
    } catch (const std::system_error& error) {
      throw DeviceError(std::string("no thread to load batches: ") + error.what());
    }
  }

  StagedBatch next() {
    std::unique_lock lock(mutex_);
    if (next_ == end_) {
      throw InvalidArgument("batch " + std::to_string(next_) + " is past the last one of this loader");
    }
    const auto with_caller = std::ranges::count_if(ring_.slots(), &Slot::with_caller);
    if (static_cast<std::size_t>(with_caller) == ring_.slots().size()) {
      throw InvalidArgument("all " + std::to_string(with_caller) +
                            " batches loaded ahead are with the caller: recycle one before asking for more");
    }
    changed_.wait(lock, [this] { return !ready_.empty() || failure_; });
    // Batches that were loaded before the failure are valid and are returned first.
    if (ready_.empty()) {
      std::rethrow_exception(failure_);
    }
    const StagedBatch batch = ready_.front();
    ready_.erase(ready_.begin());
    ++next_;
    Slot& slot = ring_.slots()[batch.slot];
    slot.with_caller = true;
    slot.number = batch.number;
    return batch;
  }

  void recycle(const StagedBatch& batch, const Frontier& copied) {
    check_last_use(device_, copied);
    {
      const std::lock_guard lock(mutex_);
      if (batch.slot >= ring_.slots().size() || !ring_.slots()[batch.slot].with_caller ||
          ring_.slots()[batch.slot].number != batch.number) {
        throw InvalidArgument("batch " + std::to_string(batch.number) +
                              " was recycled, but this loader has not handed it out or has it back");
      }
      Slot& slot = ring_.slots()[batch.slot];
      slot.copied = copied;
      slot.with_caller = false;
      free_.push_back(batch.slot);
    }
    changed_.notify_all();
  }

 private:
  // --- on the loader's thread ------------------------------------------------------------------------------

  void run(const std::stop_token& stop, std::uint64_t first) noexcept {
    try {
      for (std::uint64_t number = first; number < end_; ++number) {
        const std::optional<std::uint32_t> slot = wait_for_slot(stop);
        if (!slot) {
          return;
        }
        const StagedBatch batch = load(stop, number, *slot);
        {
          const std::lock_guard lock(mutex_);
          ready_.push_back(batch);
        }
        changed_.notify_all();
      }
    } catch (...) {
      {
        const std::lock_guard lock(mutex_);
        failure_ = std::current_exception();
      }
      changed_.notify_all();
    }
  }

  // Returns nothing if the loader is to stop.
  std::optional<std::uint32_t> wait_for_slot(const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    if (!changed_.wait(lock, stop, [this] { return !free_.empty(); })) {
      return std::nullopt;
    }
    const std::uint32_t slot = free_.front();
    free_.erase(free_.begin());
    return slot;
  }

  StagedBatch load(const std::stop_token& stop, std::uint64_t number, std::uint32_t slot_number) {
    const Slot& slot = ring_.slots()[slot_number];
    const std::span<const std::uint64_t> indices = cursor_.indices(number);
    const StagedBatch batch{.number = number,
                            .images = {.begin = slot.block.begin, .bytes = image_bytes_},
                            .targets = {.begin = slot.block.begin + image_bytes_, .bytes = target_bytes_},
                            .samples = static_cast<std::uint32_t>(indices.size()),
                            .slot = slot_number};
    if (device_.properties().touches_memory) {
      device_.synchronize(slot.copied);
      fill(stop, batch, indices);
    }
    return batch;
  }

  void fill(const std::stop_token& stop, const StagedBatch& batch, std::span<const std::uint64_t> indices) {
    const std::span images(pointer_to<float>(batch.images.begin), places_ * sample_elements_);
    const std::span targets(pointer_to<std::int32_t>(batch.targets.begin), places_ * sample_targets_);
    const std::uint64_t epoch = order_.epoch(batch.number);
    for (std::size_t i = 0; i < indices.size() && !stop.stop_requested(); ++i) {
      const std::span of_sample = targets.subspan(i * sample_targets_, sample_targets_);
      data_.read({.index = indices[i], .epoch = epoch},
                 images.subspan(i * sample_elements_, sample_elements_), of_sample);
      require_classes(indices[i], of_sample);
    }
    std::ranges::fill(images.subspan(indices.size() * sample_elements_), 0.0F);
    std::ranges::fill(targets.subspan(indices.size() * sample_targets_), -1);
  }

  void require_classes(std::uint64_t sample, std::span<const std::int32_t> targets) const {
    const auto bad = std::ranges::find_if(
        targets, [classes = data_.classes()](std::int32_t target) { return target >= classes; });
    if (bad != targets.end()) {
      throw DataError(
          "sample " + std::to_string(sample) + " of the data set has the class " + std::to_string(*bad) +
          (targets.size() > 1 ? " at place " + std::to_string(bad - targets.begin()) : "") +
          "; expected 0 to " + std::to_string(data_.classes() - 1) + ", or -1 for a place without a class");
    }
  }

  Device& device_;
  const Dataset& data_;
  const std::uint64_t places_;  // samples in a full batch
  const std::uint64_t sample_elements_;
  const std::uint64_t image_bytes_;
  const std::uint64_t sample_targets_;
  const std::uint64_t target_bytes_;
  const std::uint64_t end_;
  std::uint64_t next_;  // the batch that next() returns next; only the caller's thread uses it
  const BatchOrder order_;
  BatchCursor cursor_;  // only the loader's thread uses it

  std::mutex mutex_;  // guards the members below, but not the contents of slots' blocks
  std::condition_variable_any changed_;
  Ring ring_;
  // free_ and ready_ have capacity for all slots, so that adding a slot cannot fail. If it failed, next()
  // would wait for ever.
  std::vector<std::uint32_t> free_;
  std::vector<StagedBatch> ready_;
  std::exception_ptr failure_;
  std::jthread thread_;  // the last member, so that it ends before the members that it uses are destroyed
};

BatchLoader::BatchLoader(Device& device, PinnedPool& pool, const Dataset& data, BatchOrder order,
                         std::uint64_t first, std::uint64_t count, std::uint32_t slots) {
  if (slots == 0) {
    throw InvalidArgument("a batch loader needs at least one slot");
  }
  if (order.samples != data.size()) {
    throw InvalidArgument("an order of " + std::to_string(order.samples) + " samples for a data set of " +
                          std::to_string(data.size()));
  }
  impl_ = std::make_unique<Impl>(device, pool, data, order, first, count, slots);
}

BatchLoader::~BatchLoader() = default;

StagedBatch BatchLoader::next() {
  return impl_->next();
}

void BatchLoader::recycle(const StagedBatch& batch, const Frontier& copied) {
  impl_->recycle(batch, copied);
}

}  // namespace vdnn
