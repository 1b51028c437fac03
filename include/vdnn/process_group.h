#pragma once
// The processes that train together: who they are, where, and what they tell each other beside the gradients.
//
// A launcher (mpirun, srun with PMIx or PMI2) starts the same program several times; each process is a rank,
// with one device. They find each other through MPI, which is not reached where no launcher has asked for it:
// the world is then of one, as it is in a build without MPI.
//
// A rank that dies or hangs must not leave the others waiting. So every message is non-blocking and polled;
// whoever hears nothing from a rank for longer than the options say throws, and names the rank. What then
// ends the whole job is end_ranks(). A launcher that sees a rank die ends the others by itself (mpirun does).

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
  double start_seconds = 120;  // in which all ranks must have come; above 0
  // How long broadcast(), gather_to_all(), barrier() and the end wait without hearing anything; above 0.
  double wait_seconds = 120;
};

// Of a communicator between devices whose memory the host addresses.
struct MpiOptions {
  // A collective that has begun here and hears nothing for so long fails, whether or not anybody waits for it
  // on the host; above 0. Longer than one rank may be behind another.
  double wait_seconds = 30;
  // What messages are staged in, in all; taken once. At least 1024 bytes a rank; nothing in a world of one.
  std::uint64_t staging_bytes = 4 << 20;
};

// One a process. Belongs to one thread, but for end_ranks(). All ranks make the same calls in the same order.
// Each throws DeviceError, which names the ranks that have not answered and for what, where others do not
// take part in time; after that only end_ranks() may be called.
class ProcessGroup {
 public:
  // Joins the launcher's world; a world of one where launched_by_mpi() is false. The first call that talks to
  // other ranks: DeviceError where they do not come in time, InvalidArgument for options that cannot be,
  // where the launcher has started several ranks and this build has no MPI, and where what it has started is
  // not what MPI sees (another MPI's mpirun, or srun without --mpi). Once a process, where there is a
  // launcher: DeviceError once MPI has been finalized. A program may have started MPI itself, and then
  // finalizes it itself, after the group has gone. It has to have asked for MPI_THREAD_MULTIPLE
  // (DeviceError), because collectives call MPI on threads of their own.
  static std::unique_ptr<ProcessGroup> join(const ProcessGroupOptions& options = {});

  ProcessGroup() = default;
  ProcessGroup(const ProcessGroup&) = delete;
  ProcessGroup& operator=(const ProcessGroup&) = delete;
  // Leaves once all ranks do. While an exception passes, or where something has failed, it leaves MPI
  // unfinished instead, which launchers take for a failure when the process ends.
  virtual ~ProcessGroup() = default;

  virtual int rank() const = 0;        // 0 .. size() - 1, the same rank as in communicators
  virtual int size() const = 0;        // at least 1
  virtual int local_rank() const = 0;  // among those of this machine (that share its memory)
  virtual int local_size() const = 0;
  virtual std::string host() const = 0;  // this machine's name

  // `name` says in errors what it is for.
  //
  // What `root` has; the same number of bytes on every rank. InvalidArgument where there is no such rank.
  virtual void broadcast(std::span<std::byte> bytes, int root, std::string_view name = "broadcast") = 0;
  // Every rank's, in rank order: to compare options and hashes. While it waits it calls `check`; an exception
  // of that ends the wait as a rank that does not answer does. Where all texts are empty this is one message
  // to each rank, otherwise two.
  virtual std::vector<std::string> gather_to_all(
      const std::string& mine, std::string_view name = "gather_to_all",
      const std::function<void()>& check = [] {}) = 0;
  // Returns once all ranks have called it.
  virtual void barrier(std::string_view name = "barrier") = 0;

  // Has the launcher end all ranks, this one among them, within seconds, even where others hang: one message
  // on standard error names rank, host and cause, and `status` is what the launcher hears. Returns where that
  // has not ended this process, as in a world of one: the caller is to end it. Where another rank has said
  // why it gives up, that one is given the time to say so itself first, as ranks before this one are: up to 3
  // s; the launcher is given 5 s. From any thread; nothing is unwound.
  virtual void end_ranks(const std::string& cause, int status = 1) = 0;

  // Joins `device` with those of the other ranks, through host memory. An all-reduce is a left fold in rank
  // order, ((r0 + r1) + r2) + ..., in fp32, so its bits depend on nothing else; narrow elements are widened
  // first, and the whole sum is rounded once. Collectives run one after another in the order of their
  // submission, whatever their streams. `device` must outlive it, and this group may not
  // go before it. InvalidArgument for options that cannot be and devices whose memory the host does not
  // address, OutOfMemory where there is none for staging.
  virtual std::unique_ptr<Communicator> communicator(Device& device, const MpiOptions& options = {}) = 0;
};

// Whether a launcher of MPI programs has started this process, by what it has left in the environment. Does
// not start MPI. InvalidArgument where srun has started several processes that cannot find each other.
bool launched_by_mpi();

}  // namespace vdnn
