#pragma once
// Device memory of the parameters and the optimizer's state. The store allocates it once, and all executors
// that train or evaluate the same network share it. Not thread-safe: it belongs to the thread of its
// executors.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "vdnn/device_pool.h"
#include "vdnn/op_library.h"
#include "vdnn/pinned_pool.h"
#include "vdnn/tape.h"

namespace vdnn {

class ParameterStore {
 public:
  // Allocates memory for the parameters and states of `tape` in their order. Throws OutOfMemory.
  ParameterStore(DevicePool& pool, StreamId stream, const Tape& tape);
  ~ParameterStore();
  ParameterStore(const ParameterStore&) = delete;
  ParameterStore& operator=(const ParameterStore&) = delete;

  // The memory of one persistent value. `version` identifies its contents (see Access::version).
  struct Slot {
    AddressRange range;
    std::uint64_t version = 0;
  };
  std::size_t parameters() const { return parameter_slots_.size(); }
  Slot& parameter(std::size_t index) { return slots_[parameter_slots_[index]]; }
  // The slot of each value of `tape`; null for values that the store does not hold. `tape` may differ from
  // the constructor's if its parameters are the same in the same order, for example for evaluation.
  std::vector<Slot*> slots(const Tape& tape);

  // Sets the loss scale of a tape that has one.
  void set_loss_scale(PinnedPool& pinned, StreamId stream, const LossScale& scale);
  // The loss scale of a tape that has one; 0 until it is set.
  LossScale loss_scale(PinnedPool& pinned, StreamId stream);
  // Computes the narrow copies of all parameters anew; blocks.
  void renew_copies(PinnedPool& pinned, StreamId stream);

  // Page-locked memory that moving parameters needs, in bytes: the size of the largest slot.
  std::uint64_t transfer_bytes() const;

  // A version that no other work on this device uses (see Access).
  std::uint64_t next_version() { return ++versions_; }

  // Overwrites parameters and states on `stream` with logical values, one array per parameter and one per
  // state of it, in the form of OpProgram::pack_parameter. Without `states` the states become zero. Blocks
  // until done. On a device that does not touch memory only the versions change.
  void upload(PinnedPool& pinned, StreamId stream, OpProgram* program,
              std::span<const std::vector<float>> logical,
              std::span<const std::vector<std::vector<float>>> states = {});
  void upload_one(PinnedPool& pinned, StreamId stream, OpProgram& program, std::uint32_t index,
                  std::span<const float> logical);
  // Returns the logical values, once all work that `stream` is ordered after is done; blocks.
  std::vector<std::vector<float>> download(PinnedPool& pinned, StreamId stream, OpProgram& program);
  std::vector<float> download_one(PinnedPool& pinned, StreamId stream, OpProgram& program,
                                  std::uint32_t index);
  std::vector<std::vector<std::vector<float>>> download_states(PinnedPool& pinned, StreamId stream,
                                                               OpProgram& program);

 private:
  struct Shape {
    std::string layout;
    std::uint64_t elements = 0;
    std::optional<DataType> copy;
  };
  class Transfers;

  AddressRange take(std::uint64_t bytes);
  void give_back() noexcept;
  std::vector<float> fetch(Transfers& transfers, OpProgram& program, std::uint32_t index,
                           const Slot& slot) const;
  void upload_copy(Transfers& transfers, std::uint32_t index);
  // The parameter's slot, then the slots of its states.
  std::span<Slot> slots_of(std::size_t parameter);

  DevicePool& pool_;
  StreamId stream_;
  std::vector<Slot> slots_;                   // parameters and states, in order of creation
  std::vector<std::size_t> parameter_slots_;  // by parameter: its slot; the slots of its states follow
  std::vector<Slot> copies_;                  // by parameter: its copy in a narrow type, or nothing
  std::optional<Slot> loss_scale_;
  std::vector<Slot> sums_;     // by parameter: where gradients are accumulated, or nothing
  std::vector<Shape> shapes_;  // by parameter
  std::uint64_t versions_ = 0;
};

}  // namespace vdnn
