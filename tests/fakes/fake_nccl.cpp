#include "tests/fakes/fake_nccl.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <optional>
#include <thread>
#include <utility>

#include "src/tape/narrow_values.h"

namespace vdnn {

namespace {

std::vector<std::byte> stored(DataType type, const std::vector<float>& numbers) {
  const auto bytes = std::as_bytes(std::span(numbers));
  std::vector<std::byte> memory(bytes.begin(), bytes.end());
  if (is_narrow(type)) {
    narrow_in_place(type, memory.data(), numbers.size());
    memory.resize(numbers.size() * size_of(type));
  }
  return memory;
}

std::vector<float> rounded(DataType type, const std::vector<float>& numbers) {
  return widened(type, stored(type, numbers));
}

std::string of_type(std::uint64_t count, DataType type) {
  return " of " + std::to_string(count) + (type == DataType::kF32 ? "" : std::string(" ") + to_string(type));
}

}  // namespace

// The table of calls of one rank.
class FakeNccl::Table final : public NcclApi {
 public:
  Table(FakeNccl& fake, int rank, std::shared_ptr<FakeCuda> cuda)
      : fake_(fake), rank_(rank), cuda_(std::move(cuda)) {}

  std::string error_string(NcclStatus status) const override {
    return "NCCL error " + std::to_string(static_cast<int>(status));
  }
  std::string last_error(NcclComm) override { return "so says the fake"; }

  NcclStatus get_unique_id(NcclId& id) override {
    return call("ncclGetUniqueId", [&] { return fake_.get_unique_id(id); });
  }
  NcclStatus comm_init_rank(NcclComm& comm, int size, const NcclId& id, int rank) override {
    return call("ncclCommInitRankConfig", [&] { return fake_.init_rank(comm, size, id, rank, cuda_.get()); });
  }
  NcclStatus comm_get_async_error(NcclComm comm, NcclStatus& status) override {
    return call("ncclCommGetAsyncError", [&] { return fake_.async_error(comm, status); });
  }
  NcclStatus comm_finalize(NcclComm comm) override {
    return call("ncclCommFinalize", [&] { return fake_.finalize(comm); });
  }
  NcclStatus comm_destroy(NcclComm comm) override {
    return call(
        "ncclCommDestroy",
        [&] {
          const NcclStatus status = fake_.destroy(comm);
          fake_.disconnect(comm);
          return status;
        },
        comm);
  }
  NcclStatus comm_abort(NcclComm comm) override {
    return call(
        "ncclCommAbort",
        [&] {
          const NcclStatus status = fake_.abort(comm);
          fake_.disconnect(comm);
          return status;
        },
        comm);
  }
  NcclStatus group_start() override {
    return call("ncclGroupStart", [&] {
      if (group_) {
        return fake_.misuse_of_groups("a group in a group");
      }
      group_ = Grouped{};
      return NcclStatus::kSuccess;
    });
  }
  NcclStatus group_end() override {
    const std::optional<Grouped> group = std::exchange(group_, std::nullopt);
    return call("ncclGroupEnd", [&] {
      if (!group) {
        return fake_.misuse_of_groups("an end of no group");
      }
      const auto launch_all = [all = group->launchings] {
        CudaStatus status = CudaStatus::kSuccess;
        for (auto each = all.begin(); each != all.end() && status == CudaStatus::kSuccess; ++each) {
          status = (*each)();
        }
        return status;
      };
      return group->launchings.empty() ? NcclStatus::kSuccess : fake_.begin(group->comm, launch_all);
    });
  }
  NcclStatus all_reduce(std::uint64_t address, std::uint64_t count, DataType type, NcclComm comm,
                        CudaStream stream) override {
    const std::string what = "all-reduce" + of_type(count, type);
    // A ring rounds each partial sum to the type that it sends.
    const auto reduce = [count, type](const std::vector<std::vector<float>>& inputs) {
      std::vector<float> sums(count);
      for (const std::vector<float>& input : inputs) {
        std::ranges::transform(sums, input, sums.begin(), std::plus());
        sums = rounded(type, sums);
      }
      return rounded(type, sums);
    };
    return call("ncclAllReduce", [&] {
      return collective(what, elements_at(address, count, type), reduce, algorithm_of(count * size_of(type)),
                        comm, stream);
    });
  }
  NcclStatus broadcast(std::uint64_t address, std::uint64_t count, DataType type, int root, NcclComm comm,
                       CudaStream stream) override {
    const std::string what = "broadcast" + of_type(count, type) + " from " + std::to_string(root);
    const auto pick = [root](const std::vector<std::vector<float>>& inputs) {
      return inputs[static_cast<std::size_t>(root)];
    };
    return call("ncclBroadcast", [&] {
      return collective(what, elements_at(address, count, type), pick, Algorithm::kRing, comm, stream);
    });
  }

  double now_seconds() override { return fake_.now_seconds(); }
  void rest() override {
    cuda_->rest();
    fake_.rest();
  }

 private:
  static Elements elements_at(std::uint64_t address, std::uint64_t count, DataType type) {
    return {.range = {.begin = address, .bytes = count * size_of(type)}, .type = type};
  }

  NcclStatus collective(const std::string& what, const Elements& elements, const Outcome& outcome,
                        Algorithm algorithm, NcclComm comm, CudaStream stream) {
    Launching launching;
    const NcclStatus prepared = fake_.prepare(what, elements, outcome, comm, stream, launching);
    if (prepared != NcclStatus::kSuccess) {
      return prepared;
    }
    if (elements.range.bytes > 0) {
      fake_.connect(comm, algorithm);
    }
    if (!group_) {
      return fake_.begin(comm, launching);
    }
    group_->comm = comm;
    group_->launchings.push_back(launching);
    return NcclStatus::kSuccess;
  }

  template <class Call>
  NcclStatus call(std::string_view name, const Call& make, NcclComm releases = nullptr) {
    NcclStatus status = NcclStatus::kSuccess;
    if (fake_.fails(rank_, name, status)) {
      fake_.excuse(releases);
      return status;
    }
    return make();
  }

  // The collectives of one communicator in an open group.
  struct Grouped {
    NcclComm comm = nullptr;
    std::vector<Launching> launchings;
  };

  FakeNccl& fake_;
  const int rank_;
  const std::shared_ptr<FakeCuda> cuda_;
  std::optional<Grouped> group_;  // only one thread of a rank submits
};

// --- calls of tests ---------------------------------------------------------------------------------------

std::shared_ptr<NcclApi> FakeNccl::api(int rank, std::shared_ptr<FakeCuda> cuda) {
  return std::make_shared<Table>(*this, rank, std::move(cuda));
}

void FakeNccl::run(const std::function<void(int)>& work) {
  {
    const std::lock_guard lock(time_mutex_);
    running_ = options_.ranks;
  }
  std::vector<std::thread> threads;
  threads.reserve(ranks_.size());
  for (int rank = 0; rank < options_.ranks; ++rank) {
    threads.emplace_back([this, &work, rank] {
      work(rank);
      leave();
    });
  }
  std::ranges::for_each(threads, [](std::thread& thread) { thread.join(); });
}

void FakeNccl::let_pass(double seconds) {
  const double until = now_seconds() + seconds;
  while (now_seconds() < until) {
    rest();
  }
}

void FakeNccl::fail_call(int rank, std::uint64_t nth, NcclStatus status) {
  const std::lock_guard lock(mutex_);
  ranks_[static_cast<std::size_t>(rank)] = {.until_failure = nth, .failure = status, .failed_call = {}};
}

std::string FakeNccl::failed_call(int rank) const {
  const std::lock_guard lock(mutex_);
  return ranks_[static_cast<std::size_t>(rank)].failed_call;
}

void FakeNccl::fail_asynchronously(int rank, NcclStatus status) {
  const std::lock_guard lock(mutex_);
  for (const auto& comm : comms_) {
    if (comm->rank == rank) {
      comm->error = status;
    }
  }
}

std::vector<std::string> FakeNccl::misuses() const {
  const std::lock_guard lock(mutex_);
  return misuses_;
}

std::vector<std::string> FakeNccl::leaks() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> leaks;
  for (const auto& comm : comms_) {
    if (!comm->gone && !comm->excused) {
      leaks.push_back("the communicator of rank " + std::to_string(comm->rank));
    }
  }
  return leaks;
}

// --- time --------------------------------------------------------------------------------------------------

double FakeNccl::now_seconds() const {
  const std::lock_guard lock(time_mutex_);
  return static_cast<double>(ticks_) * kTickSeconds;
}

void FakeNccl::rest() {
  std::unique_lock lock(time_mutex_);
  ++resting_;
  const std::uint64_t now = ticks_;
  tick_if_all_rest();
  passed_.wait(lock, [&] { return ticks_ != now; });
}

void FakeNccl::leave() {
  const std::lock_guard lock(time_mutex_);
  --running_;
  tick_if_all_rest();
}

void FakeNccl::tick_if_all_rest() {
  if (resting_ >= running_) {
    ++ticks_;
    resting_ = 0;
    passed_.notify_all();
  }
}

// --- the calls ---------------------------------------------------------------------------------------------

bool FakeNccl::fails(int rank, std::string_view name, NcclStatus& status) {
  const std::lock_guard lock(mutex_);
  Rank& mine = ranks_[static_cast<std::size_t>(rank)];
  if (mine.until_failure == 0 || --mine.until_failure != 0) {
    return false;
  }
  mine.failed_call = name;
  status = mine.failure;
  return true;
}

void FakeNccl::excuse(NcclComm comm) {
  const std::lock_guard lock(mutex_);
  if (Comm* const mine = find(comm)) {
    mine->excused = true;
    mine->aborted = true;  // otherwise its GPU would keep work in flight forever
  }
}

NcclStatus FakeNccl::misuse_of_groups(const std::string& what) {
  const std::lock_guard lock(mutex_);
  return misuse(what);
}

NcclStatus FakeNccl::misuse(const std::string& what) {
  misuses_.push_back(what);
  return NcclStatus::kInvalidUsage;
}

FakeNccl::Comm* FakeNccl::find(NcclComm comm) {
  const auto it = std::ranges::find(comms_, comm, [](const auto& each) -> NcclComm { return each.get(); });
  return it == comms_.end() || (*it)->gone ? nullptr : it->get();
}

NcclStatus FakeNccl::get_unique_id(NcclId& id) {
  const std::lock_guard lock(mutex_);
  id = {};
  const std::uint64_t number = groups_.size() + 1;
  std::memcpy(id.data(), &number, sizeof number);
  groups_.emplace(id, Group());
  return NcclStatus::kSuccess;
}

NcclStatus FakeNccl::init_rank(NcclComm& comm, int size, const NcclId& id, int rank, FakeCuda* cuda) {
  const int ordinal = cuda->gpu_of_thread();
  const std::lock_guard lock(mutex_);
  const auto it = groups_.find(id);
  if (it == groups_.end() || rank < 0 || rank >= size) {
    return misuse("an id that ncclGetUniqueId did not make, or an invalid rank");
  }
  Group& group = it->second;
  if (group.size != 0 && group.size != size) {
    return misuse("ranks that join one group with different sizes");
  }
  const auto is_taken = [&](const std::unique_ptr<Comm>& other) {
    return other->group == &group &&
           (other->rank == rank || (other->cuda == cuda && other->ordinal == ordinal));
  };
  if (std::ranges::any_of(comms_, is_taken)) {
    return misuse("two ranks with the same number or the same GPU");
  }
  group.size = size;
  ++group.came;
  auto made = std::make_unique<Comm>();
  made->rank = rank;
  made->cuda = cuda;
  made->ordinal = ordinal;
  made->group = &group;
  comm = made.get();
  comms_.push_back(std::move(made));
  return NcclStatus::kInProgress;
}

NcclStatus FakeNccl::async_error(NcclComm comm, NcclStatus& status) {
  Launching unlaunched;
  {
    const std::lock_guard lock(mutex_);
    Comm* const mine = find(comm);
    if (mine == nullptr) {
      return misuse("ncclCommGetAsyncError of no communicator");
    }
    status = state_of(*mine);
    unlaunched = std::exchange(mine->unlaunched, nullptr);
  }
  if (unlaunched && unlaunched() != CudaStatus::kSuccess) {
    status = NcclStatus::kUnhandledCudaError;
  }
  return NcclStatus::kSuccess;
}

NcclStatus FakeNccl::state_of(const Comm& comm) const {
  const bool busy = comm.group->came < comm.group->size || comm.unlaunched ||
                    (comm.finalizing && comm.completed < comm.submitted);
  return comm.error != NcclStatus::kSuccess || !busy ? comm.error : NcclStatus::kInProgress;
}

NcclStatus FakeNccl::finalize(NcclComm comm) {
  const std::lock_guard lock(mutex_);
  Comm* const mine = find(comm);
  if (mine == nullptr || mine->finalizing) {
    return misuse("ncclCommFinalize of no communicator, or for the second time");
  }
  mine->finalizing = true;
  return state_of(*mine);
}

NcclStatus FakeNccl::destroy(NcclComm comm) {
  const std::lock_guard lock(mutex_);
  Comm* const mine = find(comm);
  if (mine == nullptr || !mine->finalizing || state_of(*mine) == NcclStatus::kInProgress) {
    return misuse("ncclCommDestroy of no communicator, or of one that is not finalized");
  }
  mine->gone = true;
  return NcclStatus::kSuccess;
}

NcclStatus FakeNccl::abort(NcclComm comm) {
  const std::lock_guard lock(mutex_);
  Comm* const mine = find(comm);
  if (mine == nullptr) {
    return misuse("ncclCommAbort of no communicator");
  }
  mine->gone = true;
  mine->aborted = true;
  for (const auto& peer : comms_) {
    if (options_.aborts_are_heard && peer->group == mine->group && peer->error == NcclStatus::kSuccess) {
      peer->error = NcclStatus::kRemoteError;
    }
  }
  return NcclStatus::kSuccess;
}

bool FakeNccl::is_alone(const Comm& comm) const {
  const std::lock_guard lock(mutex_);
  return comm.group->size == 1;
}

FakeNccl::Algorithm FakeNccl::algorithm_of(std::uint64_t bytes) {
  if (bytes < kMiddleBytes) {
    return Algorithm::kTree;
  }
  return bytes < kLargeBytes ? Algorithm::kNvlsTree : Algorithm::kNvls;
}

void FakeNccl::connect(NcclComm comm, Algorithm algorithm) {
  std::unique_lock lock(mutex_);
  Comm* const mine = find(comm);
  if (mine->group->size == 1 || !mine->connected.insert(algorithm).second) {
    return;
  }
  lock.unlock();
  mine->cuda->take_memory(mine->ordinal, options_.connection_bytes);
}

void FakeNccl::disconnect(NcclComm comm) {
  std::unique_lock lock(mutex_);
  const auto it = std::ranges::find(comms_, comm, [](const auto& each) -> NcclComm { return each.get(); });
  if (it == comms_.end() || !(*it)->gone) {
    return;
  }
  Comm& mine = **it;
  const std::uint64_t bytes = std::exchange(mine.connected, {}).size() * options_.connection_bytes;
  lock.unlock();
  mine.cuda->return_memory(mine.ordinal, bytes);
}

NcclStatus FakeNccl::prepare(const std::string& what, const Elements& elements, const Outcome& outcome,
                             NcclComm comm, CudaStream stream, Launching& launching) {
  const std::lock_guard lock(mutex_);
  Comm* const mine = find(comm);
  if (mine == nullptr || mine->finalizing || state_of(*mine) == NcclStatus::kInProgress) {
    return misuse(what + " on no communicator, or on one that is not ready");
  }
  if (mine->error != NcclStatus::kSuccess) {
    return mine->error;
  }
  const std::uint64_t number = mine->submitted++;
  Meeting& meeting = mine->group->meetings[number];
  if (meeting.inputs.empty()) {
    meeting.what = what;
    meeting.inputs.resize(static_cast<std::size_t>(mine->group->size));
    meeting.buffers.resize(meeting.inputs.size());
  } else if (meeting.what != what) {
    return misuse(what + " where another rank has an " + meeting.what);
  }
  launching = [this, mine, number, what, elements, outcome, stream] {
    return launch(*mine, number, what, elements, outcome, stream);
  };
  return NcclStatus::kSuccess;
}

NcclStatus FakeNccl::begin(NcclComm comm, const Launching& launching) {
  {
    const std::lock_guard lock(mutex_);
    Comm* const mine = find(comm);
    if (mine == nullptr) {
      return misuse("ncclGroupEnd of no communicator");
    }
    if (random_() % 2 != 0) {
      mine->unlaunched = launching;
      return NcclStatus::kInProgress;
    }
  }
  return launching() == CudaStatus::kSuccess ? NcclStatus::kSuccess : NcclStatus::kUnhandledCudaError;
}

CudaStatus FakeNccl::launch(Comm& comm, std::uint64_t number, const std::string& what,
                            const Elements& elements, const Outcome& outcome, CudaStream stream) {
  const AddressRange range = elements.range;
  const DataType type = elements.type;
  const auto arrive = [this, &comm, number, range, type] {
    const std::lock_guard lock(mutex_);
    Meeting& meeting = comm.group->meetings[number];
    if (!comm.aborted) {
      meeting.inputs[static_cast<std::size_t>(comm.rank)] =
          widened(type, std::span(pointer_to<const std::byte>(range.begin), range.bytes));
      meeting.buffers[static_cast<std::size_t>(comm.rank)] = {.cuda = comm.cuda, .range = range};
      ++meeting.arrived;
    }
  };
  const auto all_arrived = [this, &comm, number] {
    const std::lock_guard lock(mutex_);
    return comm.aborted || comm.group->meetings[number].arrived == comm.group->size;
  };
  const auto finish = [this, &comm, number, what, range, type, outcome, stream] {
    const std::lock_guard lock(mutex_);
    if (!comm.aborted) {
      for (const Buffer& buffer : comm.group->meetings[number].buffers) {
        if (buffer.cuda == comm.cuda) {
          FakeCuda::read_in_kernel(stream, buffer.range, what);
        }
      }
      std::ranges::copy(stored(type, outcome(comm.group->meetings[number].inputs)),
                        pointer_to<std::byte>(range.begin));
      ++comm.completed;
    }
  };
  const Access range_once{.range = range};
  const std::span<const Access> accesses(&range_once, range.bytes == 0 ? 0 : 1);
  CudaStatus status = FakeCuda::launch(stream, arrive, {.name = what, .reads = accesses, .writes = {}});
  if (status == CudaStatus::kSuccess && !is_alone(comm)) {
    status = FakeCuda::hold(stream, all_arrived);  // held work cannot be captured
  }
  return status == CudaStatus::kSuccess
             ? FakeCuda::launch(stream, finish, {.name = what, .reads = {}, .writes = accesses})
             : status;
}

}  // namespace vdnn
