#pragma once
// The processes that train together: their ranks and machines, and the messages that they exchange beside the
// gradients.
//
// A launcher (mpirun, srun with PMIx or PMI2) starts the same program several times. Each process is a rank
// with one device. Ranks find each other through MPI. Without a launcher, or in a build without MPI, MPI is
// not called and the world has one rank.
//
// A rank that dies or hangs must not leave the others waiting. So every message is non-blocking and polled. A
// call throws, and names the rank, if it hears nothing from a rank for longer than the options allow.
// end_ranks() then ends the whole job. Launchers that see a rank die, for example mpirun, end the others.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "vdnn/communicator.h"
#include "vdnn/device.h"

namespace vdnn {

struct ProcessGroupOptions {
  double start_seconds = 120;  // for all ranks to join; above 0
  // How long broadcast(), gather_to_all(), barrier() and the destructor wait for a sign of life from another
  // rank; above 0.
  double wait_seconds = 120;
};

// Options of a communicator between devices whose memory the host can address.
struct MpiOptions {
  // A collective that has begun on this rank fails if no message arrives for this time, even if the host does
  // not wait for the collective; above 0. It must exceed the lead that one rank can have over another.
  double wait_seconds = 30;
  // Total size of the staging memory for messages, which is allocated once. At least 1024 bytes per rank; not
  // used with a single rank.
  std::uint64_t staging_bytes = 4 << 20;
};

// Create one per process. Use it from one thread; only end_ranks() may be called from any thread. All ranks
// must make the same calls in the same order. If other ranks do not take part in time, a call throws a
// DeviceError that names these ranks and the call; after that only end_ranks() may be called.
class ProcessGroup {
 public:
  // Joins the launcher's world, or makes a world of one if launched_by_mpi() is false. Under a launcher it
  // may be called once per process.
  //
  // Throws DeviceError if other ranks do not join in time, and once MPI has been finalized. Throws
  // InvalidArgument for options out of range, and if the launcher has started several ranks of a program
  // without MPI. Also throws it if MPI and the launcher disagree on the world (mpirun of another MPI, or srun
  // without --mpi).
  //
  // A program that has started MPI itself must have asked for MPI_THREAD_MULTIPLE, because collectives call
  // MPI on threads of their own; otherwise DeviceError is thrown. Such a program must also finalize MPI
  // itself, after the group is destroyed.
  static std::unique_ptr<ProcessGroup> join(const ProcessGroupOptions& options = {});

  ProcessGroup() = default;
  ProcessGroup(const ProcessGroup&) = delete;
  ProcessGroup& operator=(const ProcessGroup&) = delete;
  // Leaves the group together with all other ranks. During stack unwinding, or after a failure, it leaves MPI
  // unfinalized instead; launchers report that as a failure when the process ends.
  virtual ~ProcessGroup() = default;

  virtual int rank() const = 0;        // 0 .. size() - 1, the same rank as in communicators
  virtual int size() const = 0;        // at least 1
  virtual int local_rank() const = 0;  // among those of this machine (that share its memory)
  virtual int local_size() const = 0;
  virtual std::string host() const = 0;  // this machine's name

  // In the following calls, `name` identifies the call in errors.

  // Copies the bytes of rank `root` to all ranks; every rank passes the same size. Throws InvalidArgument if
  // there is no such rank.
  virtual void broadcast(std::span<std::byte> bytes, int root, std::string_view name = "broadcast") = 0;
  // Returns every rank's text in rank order, for example to compare options and hashes. It calls `check`
  // while it waits. An exception of `check` ends the wait as a missing rank does. If all texts are empty,
  // each rank gets one message, otherwise two.
  virtual std::vector<std::string> gather_to_all(
      const std::string& mine, std::string_view name = "gather_to_all",
      const std::function<void()>& check = [] {}) = 0;
  // Returns once all ranks have called it.
  virtual void barrier(std::string_view name = "barrier") = 0;

  // Makes the launcher end all ranks, including this one, within seconds, even if some hang. One message on
  // standard error names rank, host and cause; the launcher receives `status`. Nothing is unwound. It returns
  // if this process is still alive, for example in a world of one, and the caller then ends the process. This
  // call first waits, at most 3 s, until lower ranks and a rank that has reported its own cause have printed
  // their causes. Then it gives the launcher 5 s. May be called from any thread.
  virtual void end_ranks(const std::string& cause, int status = 1) = 0;

  // Makes a communicator that joins `device` with the devices of the other ranks, through host memory. An
  // all-reduce is a left fold in rank order, ((r0 + r1) + r2) + ..., in fp32, so that its bits depend only on
  // the inputs. Narrow elements are widened first, and the whole sum is rounded once. Collectives run one
  // after another in the order of their submission, on any streams. `device` and this group must outlive the
  // communicator. Throws InvalidArgument for options out of range and for devices whose memory the host
  // cannot address, OutOfMemory if there is no memory for staging.
  virtual std::unique_ptr<Communicator> communicator(Device& device, const MpiOptions& options = {}) = 0;
};

// True if a launcher of MPI programs has started this process, judged by its environment variables. Does not
// start MPI. Throws InvalidArgument if srun has started several processes that cannot find each other.
bool launched_by_mpi();

}  // namespace vdnn
