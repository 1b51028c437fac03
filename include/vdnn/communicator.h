#pragma once
// Collectives of several ranks. A communicator joins the devices of all ranks, one per rank; each rank, a
// thread or a process, has its own communicator.
//
// A collective is a submission like any other. It runs on a stream of the rank's device, in order with the
// stream's other work, and completes a point that other streams can wait for. So gradients are reduced on a
// separate stream while the backward pass goes on, and the host does not wait. All ranks must submit the same
// collectives in the same order.
//
// A rank that dies or hangs would leave the others waiting for ever. So the host waits for a frontier with
// collectives through the communicator, which watches the time and the other ranks' reports. After a timeout
// or a reported failure it breaks off everything in flight. From then on every call throws the first cause,
// which names the rank.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "vdnn/address_range.h"
#include "vdnn/cost.h"
#include "vdnn/device.h"
#include "vdnn/tensor.h"

namespace vdnn {

// The arguments of a collective. It works in place in the memory of each rank's device; all ranks pass the
// same number of bytes.
struct Collective {
  std::string_view name;             // as Work::name
  AddressRange range;                // whole elements of the type; may be empty
  DataType type = DataType::kF32;    // kF32, kF16 or kBf16
  std::uint64_t version_before = 0;  // Access::version of the contents that are read
  std::uint64_t version_after = 0;   // Access::version of the result
  Cost cost;
};

// Submit collectives from one thread at a time. Any thread may call the other functions, also while another
// thread submits or waits. The device must outlive the communicator. After a failure all functions but
// break_off() throw the first cause: DeviceError, or the device's exception.
class Communicator {
 public:
  Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  // Waits for the collectives in flight, no longer than wait() would. During stack unwinding it breaks them
  // off instead, so that the other ranks learn of the failure.
  virtual ~Communicator() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  // Replaces each range by its sum over all ranks, with the same bits on each rank. `parts` is a bucket of
  // ranges that are ready together. They are one submission, with the name and the cost of the first part,
  // and one message if the library can merge them. All parts have the same type. A narrow type is rounded at
  // least once, when the whole sum is stored; a library may round partial sums, too (NCCL does). Throws
  // InvalidArgument for no parts, for several types, for a type that is not floating-point, and for ranges
  // that are not whole elements.
  virtual Point all_reduce(StreamId stream, std::span<const Collective> parts) = 0;
  Point all_reduce(StreamId stream, const Collective& collective) {
    return all_reduce(stream, std::span(&collective, 1));
  }
  // Copies the values of rank `root` to all ranks. Throws InvalidArgument for a rank that does not exist, and
  // for types and sizes as all_reduce() does.
  virtual Point broadcast(StreamId stream, const Collective& collective, int root) = 0;

  // Like Device::synchronize(), but cannot hang. Breaks off and throws if a collective in `frontier` fails on
  // any rank, or does not complete within the time of the communicator's options. Throws InvalidArgument, and
  // breaks nothing off, if Device::synchronize() would not be allowed to wait.
  virtual void wait(const Frontier& frontier) = 0;
  // Breaks off the collectives in flight on this rank and on all other ranks that it can reach. The contents
  // of their memory are then undefined. Every later call throws `cause`. Does nothing after a failure.
  virtual void break_off(const std::string& cause) = 0;

  // Device memory in bytes that the communicator uses in addition to committed memory. It is counted as
  // library memory.
  virtual std::uint64_t library_bytes() const = 0;
};

}  // namespace vdnn
