#include "vdnn/parameter_store.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "vdnn/error.h"

namespace vdnn {

namespace {

// A page-locked block that goes back to its pool whatever happens.
class PinnedBlock {
 public:
  PinnedBlock(PinnedPool& pool, std::uint64_t bytes) : pool_(pool) {
    const auto range = pool.allocate_for_host(bytes);
    if (!range) {
      throw OutOfMemory("page-locked memory to move a parameter", pool.shortage(bytes));
    }
    range_ = *range;
  }
  ~PinnedBlock() { pool_.free(range_, last_use_); }
  PinnedBlock(const PinnedBlock&) = delete;
  PinnedBlock& operator=(const PinnedBlock&) = delete;

  AddressRange range() const { return range_; }
  void used_until(const Frontier& frontier) { last_use_.join(frontier); }

 private:
  PinnedPool& pool_;
  AddressRange range_;
  Frontier last_use_;
};

}  // namespace

ParameterStore::ParameterStore(DevicePool& pool, StreamId stream, const Tape& tape)
    : pool_(pool), stream_(stream) {
  try {
    for (const TapeParameter& parameter : tape.parameters()) {
      parameter_slots_.push_back(slots_.size());
      shapes_.push_back(
          {.layout = parameter.recipe.storage_layout, .elements = parameter.recipe.type.elements()});
      slots_.push_back({.range = take(parameter.recipe.storage_bytes)});
      for (const ValueId state : parameter.state) {
        slots_.push_back({.range = take(tape.value(state).bytes)});
      }
    }
  } catch (...) {
    for (const Slot& slot : slots_) {
      pool_.free(slot.range, {});
    }
    throw;
  }
}

ParameterStore::~ParameterStore() {
  const Frontier everything = pool_.device().frontier(stream_);
  for (const Slot& slot : slots_) {
    pool_.free(slot.range, everything);
  }
}

AddressRange ParameterStore::take(std::uint64_t bytes) {
  const auto range = pool_.allocate(bytes, stream_);
  if (!range) {
    throw OutOfMemory("parameters and optimizer state", pool_.shortage(bytes));
  }
  return *range;
}

std::span<ParameterStore::Slot> ParameterStore::slots_of(std::size_t parameter) {
  const std::size_t first = parameter_slots_[parameter];
  const std::size_t end =
      parameter + 1 < parameter_slots_.size() ? parameter_slots_[parameter + 1] : slots_.size();
  return std::span(slots_).subspan(first, end - first);
}

ParameterStore::Slot& ParameterStore::slot(const Tape& tape, ValueId value) {
  const std::uint64_t bytes = tape.value(value).bytes;
  for (std::size_t index = 0; index < tape.parameters().size() && index < parameter_slots_.size(); ++index) {
    const TapeParameter& parameter = tape.parameters()[index];
    const std::span<Slot> slots = slots_of(index);
    if (parameter.value == value && parameter.recipe.storage_layout == shapes_[index].layout &&
        slots[0].range.bytes == bytes) {
      return slots[0];
    }
    for (std::size_t state = 0; state < parameter.state.size() && state + 1 < slots.size(); ++state) {
      if (parameter.state[state] == value && slots[1 + state].range.bytes == bytes) {
        return slots[1 + state];
      }
    }
  }
  throw InvalidArgument("the store holds no " + tape.value(value).name + " as '" + tape.model() +
                        "' wants it");
}

std::uint64_t ParameterStore::largest_slot_bytes() const {
  std::uint64_t largest = 1;
  for (const Slot& slot : slots_) {
    largest = std::max(largest, slot.range.bytes);
  }
  return largest;
}

void ParameterStore::upload(PinnedPool& pinned, StreamId stream, OpProgram* program,
                            std::span<const std::vector<float>> logical) {
  Device& device = pool_.device();
  if (device.properties().touches_memory && (program == nullptr || logical.size() != parameters())) {
    throw InvalidArgument("an upload of " + std::to_string(logical.size()) + " parameters into a store of " +
                          std::to_string(parameters()));
  }
  // One block for all, so that no more than the largest stays page-locked.
  PinnedBlock block(pinned, largest_slot_bytes());
  const auto copy_in = [&](Slot& slot, const auto& fill) {
    if (device.properties().touches_memory) {
      fill(pointer_to<std::byte>(block.range().begin));
    }
    slot.version = next_version();
    const Copy copy{.name = "upload of a parameter",
                    .direction = CopyDirection::kHostToDevice,
                    .destination = {.range = slot.range, .version = slot.version},
                    .source = {.range = {.begin = block.range().begin, .bytes = slot.range.bytes}}};
    const Frontier done{device.copy(stream, copy)};
    block.used_until(done);
    device.synchronize(done);
  };
  for (std::uint32_t index = 0; index < parameter_slots_.size(); ++index) {
    const std::span<Slot> slots = slots_of(index);
    copy_in(slots[0], [&](std::byte* storage) { program->pack_parameter(index, logical[index], storage); });
    for (Slot& state : slots.subspan(1)) {
      copy_in(state, [&](std::byte* storage) { std::memset(storage, 0, state.range.bytes); });
    }
  }
}

std::vector<std::vector<float>> ParameterStore::download(PinnedPool& pinned, StreamId stream,
                                                         OpProgram& program) {
  Device& device = pool_.device();
  PinnedBlock block(pinned, largest_slot_bytes());
  std::vector<std::vector<float>> result;
  for (std::uint32_t index = 0; index < parameter_slots_.size(); ++index) {
    const Slot& slot = slots_[parameter_slots_[index]];
    const Copy copy{.name = "download of a parameter",
                    .direction = CopyDirection::kDeviceToHost,
                    .destination = {.range = {.begin = block.range().begin, .bytes = slot.range.bytes}},
                    .source = {.range = slot.range, .version = slot.version}};
    device.copy(stream, copy);
    // All that the copy is behind, not the copy alone: what failed earlier and elsewhere has to be heard of
    // here.
    const Frontier done = device.frontier(stream);
    block.used_until(done);
    device.synchronize(done);
    result.emplace_back(shapes_[index].elements);
    program.unpack_parameter(index, pointer_to<std::byte>(block.range().begin), result.back());
  }
  return result;
}

}  // namespace vdnn
