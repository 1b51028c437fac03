#pragma once
// NCCL without GPUs, for tests of its callers. Ranks are threads, and each has the streams of its own
// FakeCuda, like a process. A collective is two pieces of work on each rank's stream. The first reads the
// rank's range. The second is held until every rank has reached it, and then writes the result. So the fake
// reports a caller that does not order its writes before the collective, or its reads after it.
//
// Ranks of one process share a FakeCuda. A rank's GPU then reads the buffers of the other ranks in place, as
// NCCL may, and needs access to them.
//
// Calls do not block, as for a communicator with NCCL's option blocking = 0. Initialisation is in progress
// until every rank has called it. The seed decides whether a collective is launched at once, or only when its
// rank queries the communicator's state.
//
// Memory is allocated late, not when ranks are joined. The first collective of each of NCCL's algorithms
// connects the ranks for this algorithm (NCCL 2.22 and later, ncclCollPreconnect(); NCCL_RUNTIME_CONNECT). A
// connection uses connection_bytes of each GPU until the communicator is gone. NCCL chooses the algorithm by
// kind and size. The fake chooses as on GPUs connected by an NVSwitch: broadcasts use rings alone, and large
// sums of floats use NVLS (tuning.cc: ncclTopoTuneModel(); device.h: ncclNvlsSupported()). A single rank has
// no other rank to connect to.
//
// Each rank has its own number and GPU (NCCL's user guide, "Creating a Communicator": one GPU for several
// ranks "is not supported and may lead to hangs").
//
// Capturing a collective of several ranks is reported. NCCL captures the collective, but then neither
// ncclCommFinalize nor ncclCommAbort ends before the graph is destroyed. (In init.cc, commDestroySync() polls
// "until all graphs referencing us die", whatever the communicator's abort flag.) A rank that gives up while
// it still has its graph would hang. A single rank has nothing of NCCL's in its graph.
//
// Time is logical. It passes one tick at a time, and only while all running ranks rest. So a rank times out
// because other ranks are missing, never because the machine is busy.
//
// Calls are counted for each rank, and a chosen one can be made to fail. Misuse, and communicators that are
// neither destroyed nor aborted, are reported.

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "src/dist/cuda/nccl_api.h"
#include "tests/fakes/fake_cuda.h"

namespace vdnn {

struct FakeNcclOptions {
  std::uint64_t seed = 0;
  int ranks = 2;
  // Whether NCCL tells the other ranks that a rank has aborted. NCCL does so if it notices the abort;
  // otherwise the other ranks wait.
  bool aborts_are_heard = true;
  std::uint64_t connection_bytes = std::uint64_t{1} << 20;
};

// Thread-safe. Outlives the tables that it made.
class FakeNccl {
 public:
  static constexpr double kTickSeconds = 1;
  // Sizes from which an all-reduce uses another algorithm.
  static constexpr std::uint64_t kMiddleBytes = 4 << 10;
  static constexpr std::uint64_t kLargeBytes = 16 << 10;

  explicit FakeNccl(const FakeNcclOptions& options)
      : options_(options), random_(options.seed), ranks_(static_cast<std::size_t>(options.ranks)) {}

  // --- calls of tests -------------------------------------------------------------------------------------
  // The table of calls of one rank, with the GPUs of `cuda`.
  std::shared_ptr<NcclApi> api(int rank, std::shared_ptr<FakeCuda> cuda);
  // Runs work(rank) on one thread per rank until all have returned.
  void run(const std::function<void(int rank)>& work);
  double now_seconds() const;
  // Rests until `seconds` have passed. Call it on a rank's thread.
  void let_pass(double seconds);

  // The `nth` call of `rank` from now on (from 1) returns `status` instead of doing anything.
  void fail_call(int rank, std::uint64_t nth, NcclStatus status);
  // The call that was made to fail, or "".
  std::string failed_call(int rank) const;
  // Puts the rank's communicator into this state from now on.
  void fail_asynchronously(int rank, NcclStatus status);

  std::vector<std::string> misuses() const;
  std::vector<std::string> leaks() const;

 private:
  class Table;

  using Launching = std::function<CudaStatus()>;

  enum class Algorithm { kTree, kRing, kNvlsTree, kNvls };

  struct Buffer {
    const FakeCuda* cuda = nullptr;
    AddressRange range;
  };
  // One collective, with the ranks that have joined it so far.
  struct Meeting {
    std::string what;
    std::vector<std::vector<float>> inputs;  // by rank, widened
    std::vector<Buffer> buffers;             // by rank
    int arrived = 0;
  };
  // The communicators with one id.
  struct Group {
    int size = 0;
    int came = 0;
    std::map<std::uint64_t, Meeting> meetings;  // by number
  };
  struct Comm {
    int rank = 0;
    FakeCuda* cuda = nullptr;
    int ordinal = 0;
    Group* group = nullptr;
    std::set<Algorithm> connected;
    std::uint64_t submitted = 0;
    std::uint64_t completed = 0;
    NcclStatus error = NcclStatus::kSuccess;  // asynchronous
    Launching unlaunched;
    bool finalizing = false;
    bool gone = false;  // destroyed or aborted
    bool aborted = false;
    bool excused = false;  // its releasing call was made to fail
  };
  struct Rank {
    std::uint64_t until_failure = 0;  // in calls; 0: none fails
    NcclStatus failure = NcclStatus::kSuccess;
    std::string failed_call;
  };
  // The place and type of a rank's elements.
  struct Elements {
    AddressRange range;
    DataType type = DataType::kF32;
  };
  // Computes the result of a collective from the inputs of all ranks. The type of their storage represents
  // the result exactly.
  using Outcome = std::function<std::vector<float>(const std::vector<std::vector<float>>& inputs)>;

  bool fails(int rank, std::string_view name, NcclStatus& status);
  NcclStatus misuse(const std::string& what);  // call it with mutex_ locked
  NcclStatus misuse_of_groups(const std::string& what);
  Comm* find(NcclComm comm);
  NcclStatus get_unique_id(NcclId& id);
  NcclStatus init_rank(NcclComm& comm, int size, const NcclId& id, int rank, FakeCuda* cuda);
  NcclStatus async_error(NcclComm comm, NcclStatus& status);
  NcclStatus state_of(const Comm& comm) const;
  NcclStatus finalize(NcclComm comm);
  NcclStatus destroy(NcclComm comm);
  NcclStatus abort(NcclComm comm);
  // Adds the work of a collective to `launching`.
  NcclStatus prepare(const std::string& what, const Elements& elements, const Outcome& outcome, NcclComm comm,
                     CudaStream stream, Launching& launching);
  // Launches the collective, now or when the rank queries the communicator's state.
  NcclStatus begin(NcclComm comm, const Launching& launching);
  // Submits the two pieces of work.
  CudaStatus launch(Comm& comm, std::uint64_t number, const std::string& what, const Elements& elements,
                    const Outcome& outcome, CudaStream stream);
  bool is_alone(const Comm& comm) const;
  static Algorithm algorithm_of(std::uint64_t bytes);
  // Connects the ranks before a collective by this algorithm. This takes the GPUs' locks, so call it without
  // mutex_ locked.
  void connect(NcclComm comm, Algorithm algorithm);
  void disconnect(NcclComm comm);
  void excuse(NcclComm comm);

  void rest();
  void leave();
  void tick_if_all_rest();  // call it with time_mutex_ locked

  const FakeNcclOptions options_;

  mutable std::mutex time_mutex_;  // guards the time below
  std::condition_variable passed_;
  std::uint64_t ticks_ = 0;
  int running_ = 0;  // ranks
  int resting_ = 0;  // among the running ranks

  // Guards all members below. Pieces of work lock it while their FakeCuda is locked, so no call of a FakeCuda
  // is made under it.
  mutable std::mutex mutex_;
  std::mt19937_64 random_;
  std::vector<Rank> ranks_;
  std::vector<std::unique_ptr<Comm>> comms_;  // never forgotten
  std::map<NcclId, Group> groups_;
  std::vector<std::string> misuses_;
};

}  // namespace vdnn
