#pragma once
// What several ranks do together. A communicator joins one device a rank; each rank, a thread or a process,
// has its own.
//
// A collective is a submission like any other: it is given to a stream of the rank's device, in order with
// what else that stream is given, and completes a point that other streams wait for. So a gradient is reduced
// on a stream of its own while backward goes on, and nobody waits on the host. All ranks submit the same
// collectives in the same order.
//
// A rank that dies or hangs would leave the others waiting for ever. So whoever waits on the host for a
// frontier with collectives in it waits through the communicator, which watches the time and what the other
// ranks report, and on either breaks off everything that is in flight. From then on every call throws the
// first cause, which names the rank.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "vdnn/address_range.h"
#include "vdnn/cost.h"
#include "vdnn/device.h"
#include "vdnn/tensor.h"

namespace vdnn {

enum class Reduction : std::uint8_t { kSum, kAverage };

// In place, on the memory of each rank's device; the same number of bytes on every rank.
struct Collective {
  std::string_view name;             // as Work::name
  AddressRange range;                // whole elements of the type; may be empty
  DataType type = DataType::kF32;    // kF32, kF16 or kBf16
  std::uint64_t version_before = 0;  // as Access::version, of what is read
  std::uint64_t version_after = 0;   // of what is left
  Cost cost;
};

// Collectives are submitted by one thread at a time; everything else may be called from any thread, also
// while another submits or waits. The device must outlive it. Everything but break_off() throws the first
// cause once something has failed: DeviceError, or what the device threw.
class Communicator {
 public:
  Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  // Waits, for as long as wait() would, for the collectives in flight. While an exception passes it breaks
  // them off instead, so that the other ranks learn of it.
  virtual ~Communicator() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  // The sum or the average over all ranks, the same bits on each of them, of ranges that are ready together,
  // a bucket: one submission, which has the name and the cost of the first part, and one message where the
  // library can make one of them. All parts have one type. A narrow one is rounded at least once, when the
  // sum of all is stored; a library may round sums on their way, too (NCCL does). Throws InvalidArgument for
  // no parts, for parts of several types, for a type that is not floating-point, and for what is not whole
  // elements.
  virtual Point all_reduce(StreamId stream, std::span<const Collective> parts, Reduction reduction) = 0;
  Point all_reduce(StreamId stream, const Collective& collective, Reduction reduction) {
    return all_reduce(stream, std::span(&collective, 1), reduction);
  }
  // All ranks get the values of rank `root`. Throws InvalidArgument for a rank that does not exist, and as
  // all_reduce() does for types and sizes.
  virtual Point broadcast(StreamId stream, const Collective& collective, int root) = 0;

  // Device::synchronize() that cannot hang: breaks off and throws where a collective in `frontier` fails on
  // any rank or does not complete in time, as the communicator's options count it. InvalidArgument, and
  // nothing is broken off, where Device::synchronize() would not be allowed to wait.
  virtual void wait(const Frontier& frontier) = 0;
  // Breaks off what is in flight, here and, where it can be told, on the other ranks. What the collectives
  // in flight leave in memory is undefined. `cause` is what every later call says. Nothing, once something
  // has failed.
  virtual void break_off(const std::string& cause) = 0;

  // What it takes of the device's memory beside what is committed: counts as library memory.
  virtual std::uint64_t library_bytes() const = 0;
};

}  // namespace vdnn
