#include "vdnn/parameter_store.h"

#include <algorithm>
#include <cstring>
#include <initializer_list>
#include <string>

#include "allocator/pinned_block.h"
#include "src/tape/narrow_values.h"
#include "vdnn/error.h"

namespace vdnn {

ParameterStore::ParameterStore(DevicePool& pool, StreamId stream, const Tape& tape)
    : pool_(pool), stream_(stream) {
  try {
    for (const TapeParameter& parameter : tape.parameters()) {
      parameter_slots_.push_back(slots_.size());
      shapes_.push_back({.layout = parameter.recipe.storage_layout,
                         .elements = parameter.recipe.type.elements(),
                         .copy = parameter.recipe.copy});
      slots_.emplace_back().range = take(parameter.recipe.storage_bytes);
      for (const ValueId state : parameter.state) {
        slots_.emplace_back().range = take(tape.value(state).bytes);
      }
      Slot& copy = copies_.emplace_back();
      if (parameter.copy != kNone) {
        copy.range = take(tape.value(parameter.copy).bytes);
      }
      Slot& sum = sums_.emplace_back();
      if (parameter.gradient_sum != kNone) {
        sum.range = take(tape.value(parameter.gradient_sum).bytes);
      }
    }
    if (tape.loss_scale() != kNone) {
      loss_scale_ = Slot{.range = take(tape.value(tape.loss_scale()).bytes)};
    }
  } catch (...) {
    give_back();
    throw;
  }
}

ParameterStore::~ParameterStore() {
  give_back();
}

// Slots of 0 bytes have no block to free.
void ParameterStore::give_back() noexcept {
  const std::vector<Slot> scale(loss_scale_ ? 1 : 0, loss_scale_.value_or(Slot{}));
  for (const std::vector<Slot>* const slots :
       std::initializer_list<const std::vector<Slot>*>{&slots_, &copies_, &sums_, &scale}) {
    for (const Slot& slot : *slots) {
      try {
        if (slot.range.bytes != 0) {
          pool_.free(slot.range, pool_.device().frontier(stream_));
        }
      } catch (...) {
        // If there is no host memory to store the frontier of the block's last use, the block stays in use
        // until the pool is destroyed.
      }
    }
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

std::vector<ParameterStore::Slot*> ParameterStore::slots(const Tape& tape) {
  std::vector<Slot*> result(tape.values().size(), nullptr);
  const auto hold = [&](ValueId value, Slot& slot) {
    result[value] = slot.range.bytes == tape.value(value).bytes ? &slot : nullptr;
  };
  for (std::size_t index = 0; index < tape.parameters().size() && index < parameter_slots_.size(); ++index) {
    const TapeParameter& parameter = tape.parameters()[index];
    const std::span<Slot> held = slots_of(index);
    if (parameter.recipe.storage_layout == shapes_[index].layout) {
      hold(parameter.value, held[0]);
      if (parameter.copy != kNone && parameter.recipe.copy == shapes_[index].copy) {
        hold(parameter.copy, copies_[index]);
      }
    }
    for (std::size_t state = 0; state < parameter.state.size() && state + 1 < held.size(); ++state) {
      hold(parameter.state[state], held[1 + state]);
    }
    if (parameter.gradient_sum != kNone) {
      hold(parameter.gradient_sum, sums_[index]);
    }
  }
  if (tape.loss_scale() != kNone && loss_scale_) {
    hold(tape.loss_scale(), *loss_scale_);
  }
  return result;
}

std::uint64_t ParameterStore::transfer_bytes() const {
  std::uint64_t largest = sizeof(LossScale);
  for (const Slot& slot : slots_) {
    largest = std::max(largest, slot.range.bytes);
  }
  return largest;
}

// Copies all parameters through one block, so that page-locked memory holds only one parameter at a time.
class ParameterStore::Transfers {
 public:
  Transfers(ParameterStore& store, PinnedPool& pinned, StreamId stream)
      : store_(store),
        device_(store.pool_.device()),
        stream_(stream),
        block_(pinned, store.transfer_bytes(), "to move a parameter") {}

  bool touches_memory() const { return device_.properties().touches_memory; }
  std::byte* host() const { return pointer_to<std::byte>(block_.range().begin); }

  // Copies the contents of host() into the slot.
  void to_device(Slot& slot) {
    slot.version = store_.next_version();
    const Copy copy{.name = "upload of a parameter",
                    .direction = CopyDirection::kHostToDevice,
                    .destination = {.range = slot.range, .version = slot.version},
                    .source = {.range = host_range(slot)}};
    const Frontier done{device_.copy(stream_, copy)};
    block_.used_until(done);
    device_.synchronize(done);
  }

  void to_host(const Slot& slot) {
    const Copy copy{.name = "download of a parameter",
                    .direction = CopyDirection::kDeviceToHost,
                    .destination = {.range = host_range(slot)},
                    .source = {.range = slot.range, .version = slot.version}};
    device_.copy(stream_, copy);
    // Waits for all work that precedes the copy, not only for the copy, so that an earlier failure on another
    // stream is reported here.
    const Frontier done = device_.frontier(stream_);
    block_.used_until(done);
    device_.synchronize(done);
  }

 private:
  AddressRange host_range(const Slot& slot) const {
    return {.begin = block_.range().begin, .bytes = slot.range.bytes};
  }

  ParameterStore& store_;
  Device& device_;
  StreamId stream_;
  PinnedBlock block_;
};

void ParameterStore::upload(PinnedPool& pinned, StreamId stream, OpProgram* program,
                            std::span<const std::vector<float>> logical,
                            std::span<const std::vector<std::vector<float>>> states) {
  if (parameter_slots_.empty()) {
    return;  // a learned step has no separate parameters and needs no page-locked memory for them
  }
  Transfers transfers(*this, pinned, stream);
  if (transfers.touches_memory() && (program == nullptr || logical.size() != parameters() ||
                                     (!states.empty() && states.size() != parameters()))) {
    throw InvalidArgument("an upload of " + std::to_string(logical.size()) + " parameters and " +
                          std::to_string(states.size()) + " states into a store of " +
                          std::to_string(parameters()));
  }
  for (std::uint32_t index = 0; index < parameter_slots_.size(); ++index) {
    const std::span<Slot> slots = slots_of(index);
    for (std::size_t i = 0; i < slots.size(); ++i) {
      if (!transfers.touches_memory()) {
        // No memory is written; only the versions change.
      } else if (i == 0) {
        program->pack_parameter(index, logical[index], transfers.host());
      } else if (states.empty()) {
        std::memset(transfers.host(), 0, slots[i].range.bytes);
      } else {
        program->pack_parameter(index, states[index].at(i - 1), transfers.host());
      }
      transfers.to_device(slots[i]);
      if (i == 0) {
        upload_copy(transfers, index);
      }
    }
  }
}

// Converts the parameter in the block of `transfers` to the type of its copy, in place, and uploads the copy.
void ParameterStore::upload_copy(Transfers& transfers, std::uint32_t index) {
  const std::optional<DataType>& type = shapes_[index].copy;
  if (!type) {
    return;
  }
  if (transfers.touches_memory()) {
    narrow_in_place(*type, transfers.host(), slots_of(index)[0].range.bytes / sizeof(float));
  }
  transfers.to_device(copies_[index]);
}

void ParameterStore::renew_copies(PinnedPool& pinned, StreamId stream) {
  Transfers transfers(*this, pinned, stream);
  for (std::uint32_t index = 0; index < parameter_slots_.size(); ++index) {
    if (shapes_[index].copy) {
      transfers.to_host(slots_of(index)[0]);
      upload_copy(transfers, index);
    }
  }
}

void ParameterStore::set_loss_scale(PinnedPool& pinned, StreamId stream, const LossScale& scale) {
  Transfers transfers(*this, pinned, stream);
  if (transfers.touches_memory()) {
    std::memcpy(transfers.host(), &scale, sizeof(scale));
  }
  transfers.to_device(loss_scale_.value());
}

LossScale ParameterStore::loss_scale(PinnedPool& pinned, StreamId stream) {
  Transfers transfers(*this, pinned, stream);
  transfers.to_host(loss_scale_.value());
  LossScale scale;
  std::memcpy(&scale, transfers.host(), sizeof(scale));
  return scale;
}

void ParameterStore::upload_one(PinnedPool& pinned, StreamId stream, OpProgram& program, std::uint32_t index,
                                std::span<const float> logical) {
  Transfers transfers(*this, pinned, stream);
  program.pack_parameter(index, logical, transfers.host());
  transfers.to_device(slots_of(index)[0]);
  upload_copy(transfers, index);
}

std::vector<float> ParameterStore::fetch(Transfers& transfers, OpProgram& program, std::uint32_t index,
                                         const Slot& slot) const {
  transfers.to_host(slot);
  std::vector<float> logical(shapes_[index].elements);
  program.unpack_parameter(index, transfers.host(), logical);
  return logical;
}

std::vector<std::vector<float>> ParameterStore::download(PinnedPool& pinned, StreamId stream,
                                                         OpProgram& program) {
  Transfers transfers(*this, pinned, stream);
  std::vector<std::vector<float>> result;
  for (std::uint32_t index = 0; index < parameter_slots_.size(); ++index) {
    result.push_back(fetch(transfers, program, index, slots_of(index)[0]));
  }
  return result;
}

std::vector<float> ParameterStore::download_one(PinnedPool& pinned, StreamId stream, OpProgram& program,
                                                std::uint32_t index) {
  Transfers transfers(*this, pinned, stream);
  return fetch(transfers, program, index, slots_of(index)[0]);
}

std::vector<std::vector<std::vector<float>>> ParameterStore::download_states(PinnedPool& pinned,
                                                                             StreamId stream,
                                                                             OpProgram& program) {
  Transfers transfers(*this, pinned, stream);
  std::vector<std::vector<std::vector<float>>> result(parameter_slots_.size());
  for (std::uint32_t index = 0; index < parameter_slots_.size(); ++index) {
    for (const Slot& state : slots_of(index).subspan(1)) {
      result[index].push_back(fetch(transfers, program, index, state));
    }
  }
  return result;
}

}  // namespace vdnn
