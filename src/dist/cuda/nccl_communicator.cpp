#include "src/dist/cuda/nccl_communicator.h"

#include <algorithm>
#include <deque>
#include <exception>
#include <mutex>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "src/dist/collective_checks.h"
#include "src/exec/collective_accesses.h"
#include "streams/cuda/cuda_context.h"
#include "vdnn/error.h"
#include "vdnn/size.h"

namespace vdnn {

namespace {

void check_options(const Device& device, const NcclOptions& options) {
  if (const std::string gpu = "cuda:" + std::to_string(options.ordinal); device.properties().name != gpu) {
    throw InvalidArgument("NCCL: the device is " + device.properties().name + ", the GPU to be joined " +
                          gpu);
  }
  if (options.rank < 0 || options.rank >= options.size) {
    throw InvalidArgument("NCCL: there is no rank " + std::to_string(options.rank) + " of " +
                          std::to_string(options.size));
  }
  if (!(options.start_seconds > 0 && options.wait_seconds > 0)) {
    throw InvalidArgument("NCCL: start_seconds is " + format_seconds(options.start_seconds) +
                          " and wait_seconds " + format_seconds(options.wait_seconds) +
                          ": both must be above 0");
  }
  if (!options.exchange_id) {
    throw InvalidArgument("NCCL: exchange_id is empty, so ranks cannot exchange their id");
  }
}

std::uint64_t elements_of(const Collective& collective) {
  return collective.range.bytes / size_of(collective.type);
}

// A stream and memory for a trial group of all-reduces, separate from the device's streams and memory. Call
// the functions within a CudaContext::Scope.
class ConnectionTrial {
 public:
  ConnectionTrial(CudaContext& context, std::uint64_t largest_bytes) : context_(context) {
    const std::uint64_t bytes = lay_out(largest_bytes);
    context_.check(context_.api().stream_create(stream_), "cudaStreamCreateWithFlags");
    const CudaStatus made = context_.api().malloc(address_, bytes);
    if (made != CudaStatus::kSuccess) {
      context_.forget(context_.api().stream_destroy(stream_));
    }
    context_.check(made, "cudaMalloc", [bytes] { return format_size(bytes); });
    for (Collective& part : parts_) {
      part.range.begin += address_;
    }
  }
  ~ConnectionTrial() {
    context_.forget(context_.api().stream_synchronize(stream_));
    context_.forget(context_.api().free(address_));
    context_.forget(context_.api().stream_destroy(stream_));
  }
  ConnectionTrial(const ConnectionTrial&) = delete;
  ConnectionTrial& operator=(const ConnectionTrial&) = delete;

  CudaStream stream() const { return stream_; }
  // Ranges from the largest size down to four bytes, each at most a quarter of the previous one. In a group,
  // NCCL selects one algorithm for an all-reduce and all larger ones of less than four times its size. These
  // sizes differ by a factor of at least four, so NCCL selects an algorithm for each of them.
  std::vector<Collective> parts(DataType type) const {
    std::vector<Collective> typed = parts_;
    for (Collective& part : typed) {
      part.type = type;
    }
    return typed;
  }
  const Collective& smallest() const { return parts_.back(); }

 private:
  std::uint64_t lay_out(std::uint64_t largest_bytes) {
    constexpr std::uint64_t kStep = 4;
    std::uint64_t end = 0;
    for (std::uint64_t values = std::max<std::uint64_t>(largest_bytes / sizeof(float), 1); values > 0;
         values /= kStep) {
      const std::uint64_t bytes = values * sizeof(float);
      parts_.push_back({.name = "connect", .range = {.begin = end, .bytes = bytes}});
      end += bytes;
    }
    return end;
  }

  CudaContext& context_;
  CudaStream stream_ = nullptr;
  std::uint64_t address_ = 0;
  std::vector<Collective> parts_;
};

class NcclCommunicator final : public Communicator {
 public:
  NcclCommunicator(Device& device, const NcclOptions& options, const NcclSource& nccl,
                   std::shared_ptr<CudaApi> cuda);
  ~NcclCommunicator() override;

  int rank() const override { return options_.rank; }
  int size() const override { return options_.size; }
  using Communicator::all_reduce;
  Point all_reduce(StreamId stream, std::span<const Collective> parts) override;
  Point broadcast(StreamId stream, const Collective& collective, int root) override;
  void wait(const Frontier& frontier) override;
  void break_off(const std::string& cause) override;
  std::uint64_t library_bytes() const override { return library_bytes_; }

 private:
  struct Submitted {
    std::string name;
    Point point;
  };

  // Takes part in the exchange of ids even after a failure on this rank, since the other ranks wait for it.
  NcclId exchange_id(const NcclSource& nccl);
  void start(const NcclId& id);
  void connect();
  void wait_until_connected(CudaStream stream);
  std::uint64_t free_bytes();

  // Submits `call(stream)`, which calls NCCL.
  template <class Call>
  Point submit(StreamId stream, std::span<const Collective> parts, const CollectiveAccesses& accesses,
               const std::string& name, const Call& call);
  // all_reduce_as_one() and broadcast_alone() call NCCL, so hold the lock when you call them.
  NcclStatus all_reduce_as_one(std::span<const Collective> parts, CudaStream native);
  NcclStatus broadcast_alone(const Collective& collective, int root, CudaStream native) {
    return api_->broadcast(collective.range.begin, elements_of(collective), collective.type, root, comm_,
                           native);
  }
  // Returns once NCCL has finished `call`, which returned `status`. If that takes more than `seconds`, the
  // error states what is `missing`.
  void finish(NcclStatus status, const std::string& call, double seconds, const std::string& missing);
  NcclStatus poll();
  void check_async();
  // The name of the first collective in `frontier` that has not completed, or "".
  std::string unfinished(const Frontier& frontier);
  void forget_completed();  // call with the lock held

  std::string describe(NcclStatus status);  // call with the lock held
  DeviceError error(const std::string& what) const { return DeviceError(who_ + ": " + what); }
  void throw_if_failed() const;  // call with the lock held
  // Records `cause` if no cause has been recorded yet, breaks the communicator, and throws the first cause.
  [[noreturn]] void fail(const std::exception_ptr& cause);
  void end(const std::exception_ptr& cause);
  [[noreturn]] void fail(const std::string& what) { fail(std::make_exception_ptr(error(what))); }
  [[noreturn]] void give_up(const std::string& call, double seconds, const std::string& missing) {
    fail(call + ": waited " + format_seconds(seconds) + ", but " + missing);
  }

  Device& device_;
  const NcclOptions options_;
  const std::string who_;  // begins each message
  CudaContext context_;
  const int exceptions_ = std::uncaught_exceptions();
  std::uint64_t library_bytes_ = 0;
  std::shared_ptr<NcclApi> api_;
  // Guards the members below and the calls of NCCL. Of these calls only ncclCommAbort blocks, so it is made
  // without the lock.
  mutable std::mutex mutex_;
  NcclComm comm_ = nullptr;  // null once destroyed
  std::exception_ptr cause_;
  std::deque<Submitted> in_flight_;  // in order of submission; completed collectives at the front are removed
};

NcclCommunicator::NcclCommunicator(Device& device, const NcclOptions& options, const NcclSource& nccl,
                                   std::shared_ptr<CudaApi> cuda)
    : device_(device),
      options_(options),
      who_(name_rank(device, options.rank, options.size)),
      context_(device.properties().name, std::move(cuda), options.ordinal) {
  start(exchange_id(nccl));
}

NcclCommunicator::~NcclCommunicator() {
  if (std::uncaught_exceptions() > exceptions_) {
    break_off("its work was broken off");
    return;
  }
  const CudaContext::Scope scope = context_.enter_anyway();
  try {
    std::unique_lock lock(mutex_);
    throw_if_failed();
    const NcclStatus begun = api_->comm_finalize(comm_);
    lock.unlock();
    finish(begun, "ncclCommFinalize", options_.wait_seconds, "the other ranks have not finished");
    lock.lock();
    // A failure of this call can no longer be reported to other ranks.
    api_->comm_destroy(std::exchange(comm_, nullptr));
  } catch (const std::exception&) {
    // The failure that this exception reports has already broken the communicator and aborted it.
  }
}

// --- start -------------------------------------------------------------------------------------------------

NcclId NcclCommunicator::exchange_id(const NcclSource& nccl) {
  NcclId id{};
  std::exception_ptr failure;
  try {
    api_ = nccl();
    if (options_.rank == 0) {
      const CudaContext::Scope scope = context_.enter();
      if (const NcclStatus made = api_->get_unique_id(id); made != NcclStatus::kSuccess) {
        throw error("ncclGetUniqueId: " + describe(made));
      }
    }
  } catch (...) {
    failure = std::current_exception();
    id = {};
  }
  options_.exchange_id(id);
  if (failure) {
    std::rethrow_exception(failure);
  }
  if (id == NcclId{}) {
    throw error("rank 0 could not start NCCL");
  }
  return id;
}

std::uint64_t NcclCommunicator::free_bytes() {
  std::uint64_t free = 0;
  std::uint64_t total = 0;
  context_.check(context_.api().memory_info(free, total), "cudaMemGetInfo");
  return free;
}

void NcclCommunicator::start(const NcclId& id) {
  const CudaContext::Scope scope = context_.enter();
  try {
    const std::uint64_t before = free_bytes();
    const NcclStatus begun = api_->comm_init_rank(comm_, options_.size, id, options_.rank);
    finish(begun, "ncclCommInitRankConfig", options_.start_seconds, "not all ranks have joined");
    connect();
    library_bytes_ = before - std::min(before, free_bytes());
  } catch (...) {
    fail(std::current_exception());
  }
}

void NcclCommunicator::connect() {
  const ConnectionTrial trial(context_, options_.bucket_bytes);
  const auto make = [this](const char* name, const auto& call) {
    std::unique_lock lock(mutex_);
    const NcclStatus begun = call();
    lock.unlock();
    finish(begun, name, options_.start_seconds, "not all ranks are connected");
  };
  try {
    for (const DataType type : std::set{DataType::kF32, options_.bucket_type}) {
      const std::vector<Collective> parts = trial.parts(type);
      make("ncclAllReduce", [&] { return all_reduce_as_one(parts, trial.stream()); });
    }
    make("ncclBroadcast", [&] { return broadcast_alone(trial.smallest(), 0, trial.stream()); });
    wait_until_connected(trial.stream());
  } catch (...) {
    fail(std::current_exception());  // breaks the communicator: the trial's destructor would otherwise wait
                                     // for its work
  }
}

void NcclCommunicator::wait_until_connected(CudaStream stream) {
  const double deadline = api_->now_seconds() + options_.start_seconds;
  while (!context_.is_ready(context_.api().stream_query(stream), "cudaStreamQuery")) {
    check_async();
    if (api_->now_seconds() >= deadline) {
      give_up("NCCL's first collectives", options_.start_seconds, "not all ranks are connected");
    }
    api_->rest();
  }
}

void NcclCommunicator::finish(NcclStatus status, const std::string& call, double seconds,
                              const std::string& missing) {
  const double deadline = api_->now_seconds() + seconds;
  while (status == NcclStatus::kInProgress) {
    if (api_->now_seconds() >= deadline) {
      give_up(call, seconds, missing);
    }
    api_->rest();
    status = poll();
  }
  if (status != NcclStatus::kSuccess) {
    std::unique_lock lock(mutex_);
    throw_if_failed();
    const std::string reason = describe(status);
    lock.unlock();
    fail(call + ": " + reason);
  }
}

NcclStatus NcclCommunicator::poll() {
  try {
    const CudaContext::Scope scope = context_.enter();
    const std::lock_guard lock(mutex_);
    throw_if_failed();
    NcclStatus state = NcclStatus::kSuccess;
    const NcclStatus asked = api_->comm_get_async_error(comm_, state);
    return asked == NcclStatus::kSuccess ? state : asked;
  } catch (...) {
    // Breaks the communicator. Otherwise NCCL could still launch the collective, after later work of the
    // stream.
    fail(std::current_exception());
  }
}

// --- collectives -------------------------------------------------------------------------------------------

Point NcclCommunicator::all_reduce(StreamId stream, std::span<const Collective> parts) {
  check_parts(who_, parts);
  return submit(stream, parts, accesses_of_all_reduce(parts), "ncclAllReduce",
                [&](CudaStream native) { return all_reduce_as_one(parts, native); });
}

NcclStatus NcclCommunicator::all_reduce_as_one(std::span<const Collective> parts, CudaStream native) {
  NcclStatus begun = api_->group_start();
  if (begun != NcclStatus::kSuccess) {
    return begun;
  }
  for (const Collective& part : parts) {
    if (begun == NcclStatus::kSuccess || begun == NcclStatus::kInProgress) {
      begun = api_->all_reduce(part.range.begin, elements_of(part), part.type, comm_, native);
    }
  }
  // Ends the group even after a refused call. Otherwise the thread's next call would belong to this group.
  const NcclStatus ended = api_->group_end();
  return begun == NcclStatus::kSuccess || begun == NcclStatus::kInProgress ? ended : begun;
}

Point NcclCommunicator::broadcast(StreamId stream, const Collective& collective, int root) {
  const std::span parts(&collective, 1);
  check_parts(who_, parts);
  check_root(who_, collective, root, options_.size);
  return submit(stream, parts, accesses_of_broadcast(collective, root == options_.rank), "ncclBroadcast",
                [&](CudaStream native) { return broadcast_alone(collective, root, native); });
}

template <class Call>
Point NcclCommunicator::submit(StreamId stream, std::span<const Collective> parts,
                               const CollectiveAccesses& accesses, const std::string& name,
                               const Call& call) {
  const std::string what =
      name + " '" + std::string(parts.front().name) + "' of " + format_size(total_bytes(parts));
  const bool captured = device_.capturing();
  if (captured && options_.size > 1) {
    throw InvalidArgument(
        who_ + ": " + what +
        " of several ranks cannot be captured: NCCL could not be aborted while the graph exists");
  }
  const auto launch = [&](void* native) {
    std::unique_lock lock(mutex_);
    throw_if_failed();
    const NcclStatus begun = call(native);
    lock.unlock();
    // Waits for the launch. Otherwise the work that the caller submits to the stream next could run ahead of
    // the collective.
    finish(begun, what, options_.wait_seconds, "it has not been launched");
  };
  check_async();
  const Point point = device_.submit(stream, {.name = parts.front().name,
                                              .reads = accesses.reads,
                                              .writes = accesses.writes,
                                              .cost = parts.front().cost,
                                              .run = launch});
  const std::lock_guard lock(mutex_);
  if (!captured) {  // a thread that captures cannot query points
    forget_completed();
  }
  in_flight_.push_back({.name = what, .point = point});
  return point;
}

void NcclCommunicator::check_async() {
  finish(poll(), "ncclCommGetAsyncError", options_.wait_seconds,
         "not all earlier submissions have been launched");
}

// --- waiting and failing -----------------------------------------------------------------------------------

void NcclCommunicator::wait(const Frontier& frontier) {
  check_can_wait(who_, device_, frontier);
  try {
    double deadline = api_->now_seconds() + options_.wait_seconds;
    for (; !device_.reached(frontier); api_->rest()) {
      check_async();
      if (api_->now_seconds() >= deadline) {
        if (const std::string awaited = unfinished(frontier); !awaited.empty()) {
          give_up(awaited, options_.wait_seconds,
                  "it has not completed; a rank has died, hangs, or is in another collective");
        }
        deadline += options_.wait_seconds;
      }
    }
    check_async();
    device_.synchronize(frontier);
  } catch (...) {
    fail(std::current_exception());
  }
}

std::string NcclCommunicator::unfinished(const Frontier& frontier) {
  const std::lock_guard lock(mutex_);
  forget_completed();
  const auto it =
      std::ranges::find_if(in_flight_, [&](const Submitted& each) { return frontier.dominates(each.point); });
  return it == in_flight_.end() ? "" : it->name;
}

void NcclCommunicator::forget_completed() {
  while (!in_flight_.empty() && device_.reached(Frontier(in_flight_.front().point))) {
    in_flight_.pop_front();
  }
}

void NcclCommunicator::break_off(const std::string& cause) {
  end(std::make_exception_ptr(error(cause)));
}

std::string NcclCommunicator::describe(NcclStatus status) {
  const std::string last = comm_ == nullptr ? "" : api_->last_error(comm_);
  return api_->error_string(status) + (last.empty() ? "" : " (" + last + ")");
}

void NcclCommunicator::throw_if_failed() const {
  if (cause_) {
    std::rethrow_exception(cause_);
  }
}

void NcclCommunicator::fail(const std::exception_ptr& cause) {
  end(cause);
  const std::lock_guard lock(mutex_);
  std::rethrow_exception(cause_);
}

void NcclCommunicator::end(const std::exception_ptr& cause) {
  NcclComm broken = nullptr;
  {
    const std::lock_guard lock(mutex_);
    if (cause_) {
      return;
    }
    cause_ = cause;
    broken = std::exchange(comm_, nullptr);
  }
  // The abort waits for NCCL's threads. It is made without the lock, since another thread that waits with a
  // deadline needs the lock to poll.
  if (broken != nullptr) {
    const CudaContext::Scope scope = context_.enter_anyway();
    api_->comm_abort(broken);  // its result no longer matters
  }
}

}  // namespace

std::unique_ptr<Communicator> make_nccl_communicator(Device& device, const NcclOptions& options,
                                                     const NcclSource& nccl, std::shared_ptr<CudaApi> cuda) {
  check_options(device, options);
  return std::make_unique<NcclCommunicator>(device, options, nccl, std::move(cuda));
}

std::unique_ptr<Communicator> make_nccl_communicator(Device& device, const NcclOptions& options) {
#ifdef VDNN_WITH_NCCL
  return make_nccl_communicator(device, options, make_nccl_api, make_cuda_api());
#else
  check_options(device, options);
  throw DeviceError(device.properties().name +
                    ": this build has no NCCL; build with VDNN_CUDA=ON where the CUDA toolkit and NCCL are");
#endif
}

}  // namespace vdnn
