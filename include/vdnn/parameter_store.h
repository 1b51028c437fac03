#pragma once
// Where parameters and the optimizer's state lie: taken from the pool once, shared by every executor that
// trains or evaluates the same network. Not thread-safe; belongs to the thread of its executors.

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
  // Takes memory for the parameters and states of `tape` in their order. Throws OutOfMemory.
  ParameterStore(DevicePool& pool, StreamId stream, const Tape& tape);
  ~ParameterStore();
  ParameterStore(const ParameterStore&) = delete;
  ParameterStore& operator=(const ParameterStore&) = delete;

  // One persistent value in memory. `version` counts its rewrites (see Access::version).
  struct Slot {
    AddressRange range;
    std::uint64_t version = 0;
  };
  std::size_t parameters() const { return parameter_slots_.size(); }
  Slot& parameter(std::size_t index) { return slots_[parameter_slots_[index]]; }
  // Of each value of `tape`, which need not be the tape of the constructor: an evaluation tape has the same
  // parameters in the same order. Null where the store holds no such value.
  std::vector<Slot*> slots(const Tape& tape);

  // The loss scale of a tape that has one; 0 before it is set.
  void set_loss_scale(PinnedPool& pinned, StreamId stream, const LossScale& scale);
  LossScale loss_scale(PinnedPool& pinned, StreamId stream);
  // Makes all copies in narrow types of the parameters as they are; blocks.
  void renew_copies(PinnedPool& pinned, StreamId stream);

  // Of page-locked memory, that moving parameters takes: as much as the largest slot.
  std::uint64_t transfer_bytes() const;

  // Versions that no other work on this device uses; see Access.
  std::uint64_t next_version() { return ++versions_; }

  // Overwrites parameters and states on `stream`, from logical values (an array a parameter, and one a state
  // of it, in the order and form of OpProgram::pack_parameter; without states these are cleared); blocks
  // until done. On a device that does not touch memory only the versions move.
  void upload(PinnedPool& pinned, StreamId stream, OpProgram* program,
              std::span<const std::vector<float>> logical,
              std::span<const std::vector<std::vector<float>>> states = {});
  void upload_one(PinnedPool& pinned, StreamId stream, OpProgram& program, std::uint32_t index,
                  std::span<const float> logical);
  // The reverse, after everything that `stream` knows of; blocks.
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
  // The parameter's, then its states'.
  std::span<Slot> slots_of(std::size_t parameter);

  DevicePool& pool_;
  StreamId stream_;
  std::vector<Slot> slots_;                   // parameters and states, in order of creation
  std::vector<std::size_t> parameter_slots_;  // a parameter: its slot; its states follow it
  std::vector<Slot> copies_;                  // a parameter: its copy in a narrow type, or nothing
  std::optional<Slot> loss_scale_;
  std::vector<Slot> sums_;     // a parameter: where gradients are accumulated, or nothing
  std::vector<Shape> shapes_;  // a parameter
  std::uint64_t versions_ = 0;
};

}  // namespace vdnn
