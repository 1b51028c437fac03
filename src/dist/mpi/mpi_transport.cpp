#include "src/dist/mpi/mpi_transport.h"

#include <mpi.h>

#include <array>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "src/dist/collective_checks.h"
#include "vdnn/error.h"

namespace vdnn {

namespace {

using Clock = std::chrono::steady_clock;

void check(int status, const char* call) {
  if (status != MPI_SUCCESS) {
    std::array<char, MPI_MAX_ERROR_STRING> text{};
    int length = 0;
    MPI_Error_string(status, text.data(), &length);
    throw DeviceError(std::string(call) + ": " + std::string(text.data(), static_cast<std::size_t>(length)));
  }
}

// Starts and ends MPI. The calls for both (MPI_Init_thread and MPI_Finalize) wait for all ranks and accept no
// deadline. So a separate thread makes the two calls, and the caller waits for that thread with a deadline.
// It is one thread, since MPI requires the same thread for both calls. After a timeout the thread continues
// and owns the shared state.
class MpiLife {
 public:
  struct Started {
    World world;
    MPI_Comm comm = MPI_COMM_NULL;  // used by this transport alone
    int largest_tag = 0;
  };

  // Throws the exception with which the start failed, or DeviceError if MPI has not started within `seconds`.
  explicit MpiLife(double seconds) {
    std::thread([shared = shared_] { live(*shared); }).detach();
    if (!wait_for(Phase::kStarted, seconds)) {
      move_to(Phase::kLetGo);
      throw DeviceError("MPI_Init_thread: not all ranks have started within " + format_seconds(seconds));
    }
    if (shared_->failure) {
      move_to(Phase::kLetGo);
      std::rethrow_exception(shared_->failure);
    }
  }
  ~MpiLife() { move_to(Phase::kLetGo); }
  MpiLife(const MpiLife&) = delete;
  MpiLife& operator=(const MpiLife&) = delete;

  const Started& started() const { return shared_->started; }

  // Returns whether MPI ended within `seconds`. Call it once.
  bool finalize(double seconds) {
    move_to(Phase::kEnding);
    return wait_for(Phase::kEnded, seconds);
  }

 private:
  enum class Phase { kStarting, kStarted, kEnding, kEnded, kLetGo };
  struct Shared {
    Started started;             // constant once MPI has started
    std::exception_ptr failure;  // why MPI did not start; not changed afterwards
    std::mutex mutex;            // guards the members below
    std::condition_variable moved;
    Phase phase = Phase::kStarting;
  };

  static void live(Shared& shared) {
    bool ours = false;
    try {
      ours = start(shared.started);
    } catch (...) {
      shared.failure = std::current_exception();
    }
    std::unique_lock lock(shared.mutex);
    if (shared.phase == Phase::kStarting) {
      shared.phase = Phase::kStarted;
    }
    shared.moved.notify_all();
    shared.moved.wait(lock, [&] { return shared.phase != Phase::kStarted; });
    if (shared.phase != Phase::kEnding) {
      return;
    }
    lock.unlock();
    if (ours) {
      MPI_Finalize();
    }
    lock.lock();
    shared.phase = Phase::kEnded;
    shared.moved.notify_all();
  }

  // Returns whether this call has started MPI. A program that has started MPI itself also ends it.
  static bool start(Started& started) {
    int over = 0;
    check(MPI_Finalized(&over), "MPI_Finalized");
    if (over != 0) {  // after MPI_Finalize, almost every other call would end the process
      throw DeviceError("MPI has been finalized in this process, and cannot be started again");
    }
    int before = 0;
    check(MPI_Initialized(&before), "MPI_Initialized");
    before != 0 ? require_program_threads() : start_with_threads();
    check(MPI_Comm_dup(MPI_COMM_WORLD, &started.comm), "MPI_Comm_dup");
    check(MPI_Comm_set_errhandler(started.comm, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
    World& world = started.world;
    check(MPI_Comm_rank(started.comm, &world.rank), "MPI_Comm_rank");
    check(MPI_Comm_size(started.comm, &world.size), "MPI_Comm_size");

    MPI_Comm local = MPI_COMM_NULL;
    check(MPI_Comm_split_type(started.comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &local),
          "MPI_Comm_split_type");
    check(MPI_Comm_rank(local, &world.local_rank), "MPI_Comm_rank");
    check(MPI_Comm_size(local, &world.local_size), "MPI_Comm_size");
    check(MPI_Comm_free(&local), "MPI_Comm_free");

    std::array<char, MPI_MAX_PROCESSOR_NAME> name{};
    int length = 0;
    check(MPI_Get_processor_name(name.data(), &length), "MPI_Get_processor_name");
    world.host.assign(name.data(), static_cast<std::size_t>(length));

    const int* largest_tag = nullptr;
    int found = 0;
    check(MPI_Comm_get_attr(started.comm, MPI_TAG_UB, static_cast<void*>(&largest_tag), &found),
          "MPI_Comm_get_attr");
    constexpr int kLeastOfTheStandard = 32767;
    started.largest_tag = found != 0 ? *largest_tag : kLeastOfTheStandard;
    return before == 0;
  }

  // MPI_THREAD_SERIALIZED suffices, since all calls are made under one lock.
  static void start_with_threads() {
    int provided = 0;
    check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided), "MPI_Init_thread");
    if (provided < MPI_THREAD_SERIALIZED) {
      throw DeviceError("MPI_Init_thread: this MPI permits calls of only one thread");
    }
  }

  // A program that has started MPI itself does not hold vdnn's lock in its calls of MPI, and collectives of
  // vdnn call MPI on other threads. So MPI must permit calls of several threads at the same time.
  static void require_program_threads() {
    int provided = 0;
    check(MPI_Query_thread(&provided), "MPI_Query_thread");
    if (provided < MPI_THREAD_MULTIPLE) {
      throw DeviceError(
          "MPI_Query_thread: the program has started MPI without MPI_THREAD_MULTIPLE, and its calls could "
          "run at the same time as vdnn's; request it from MPI_Init_thread");
    }
  }

  void move_to(Phase phase) {
    const std::lock_guard lock(shared_->mutex);
    shared_->phase = phase;
    shared_->moved.notify_all();
  }
  bool wait_for(Phase phase, double seconds) {
    std::unique_lock lock(shared_->mutex);
    return shared_->moved.wait_for(lock, std::chrono::duration<double>(seconds),
                                   [&] { return shared_->phase == phase; });
  }

  const std::shared_ptr<Shared> shared_ = std::make_shared<Shared>();
};

// The calls of MPI, shared by all messages. Abandoned messages keep this object alive.
class MpiCalls {
 public:
  explicit MpiCalls(MPI_Comm comm) : comm_(comm) {}

  MPI_Request send(int to, int tag, std::span<std::byte> bytes) {
    const std::lock_guard lock(mutex_);
    check_not_ended();
    MPI_Request request = MPI_REQUEST_NULL;
    check(MPI_Isend(bytes.data(), static_cast<int>(bytes.size()), MPI_BYTE, to, tag, comm_, &request),
          "MPI_Isend");
    return request;  // polled by test(). NOLINT(clang-analyzer-optin.mpi.MPI-Checker)
  }

  MPI_Request receive(int from, int tag, std::span<std::byte> bytes) {
    const std::lock_guard lock(mutex_);
    check_not_ended();
    MPI_Request request = MPI_REQUEST_NULL;
    check(MPI_Irecv(bytes.data(), static_cast<int>(bytes.size()), MPI_BYTE, from, tag, comm_, &request),
          "MPI_Irecv");
    return request;  // polled by test(). NOLINT(clang-analyzer-optin.mpi.MPI-Checker)
  }

  // Returns whether a send is complete.
  bool test(MPI_Request& request) {
    const std::lock_guard lock(mutex_);
    return test(request, MPI_STATUS_IGNORE);
  }
  // Returns the number of received bytes once a receive is complete. Do not call it for a send, whose status
  // MPI leaves undefined.
  std::optional<int> test_receive(MPI_Request& request) {
    const std::lock_guard lock(mutex_);
    MPI_Status status;
    if (!test(request, &status)) {
      return std::nullopt;
    }
    int bytes = 0;
    check(MPI_Get_count(&status, MPI_BYTE, &bytes), "MPI_Get_count");
    return bytes;
  }

  // Abandons a message that is not done.
  void let_go(MPI_Request request, bool may_cancel, const std::shared_ptr<std::byte[]>& memory) noexcept {
    const std::lock_guard lock(mutex_);
    if (ended_) {
      return;
    }
    int done = 0;
    if (may_cancel && MPI_Cancel(&request) == MPI_SUCCESS &&
        MPI_Test(&request, &done, MPI_STATUS_IGNORE) == MPI_SUCCESS && done != 0) {
      return;
    }
    // MPI may access the message's memory until MPI ends.
    left_behind_.push_back(memory);
  }

  // Forbids further calls of MPI.
  void end() {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }

  void end_ranks(int status) {
    const std::lock_guard lock(mutex_);
    MPI_Abort(comm_, status);
  }

 private:
  // The caller holds the lock.
  bool test(MPI_Request& request, MPI_Status* status) const {
    check_not_ended();
    int done = 0;
    check(MPI_Test(&request, &done, status), "MPI_Test");
    return done != 0;
  }

  // By default, a call of MPI after MPI_Finalize ends the process.
  void check_not_ended() const {
    if (ended_) {
      throw DeviceError("MPI: a message after the end");
    }
  }

  std::mutex mutex_;  // held during every call of MPI
  const MPI_Comm comm_;
  bool ended_ = false;
  std::vector<std::shared_ptr<std::byte[]>> left_behind_;
};

class MpiMessage final : public Message {
 public:
  enum class Kind { kSend, kReceive };
  MpiMessage(std::shared_ptr<MpiCalls> calls, Kind kind, int peer, MPI_Request request, const Staged& staged)
      : calls_(std::move(calls)), kind_(kind), peer_(peer), request_(request), staged_(staged) {}
  ~MpiMessage() override {
    if (request_ != MPI_REQUEST_NULL) {
      calls_->let_go(request_, kind_ == Kind::kReceive, staged_.memory);
    }
  }

  bool done() override {
    if (kind_ == Kind::kSend) {
      return calls_->test(request_);
    }
    const std::optional<int> bytes = calls_->test_receive(request_);
    if (bytes && static_cast<std::size_t>(*bytes) != staged_.bytes.size()) {
      throw DeviceError("MPI: rank " + std::to_string(peer_) + " has sent " + std::to_string(*bytes) +
                        " bytes, but " + std::to_string(staged_.bytes.size()) +
                        " were expected: it is in another collective");
    }
    return bytes.has_value();
  }

 private:
  const std::shared_ptr<MpiCalls> calls_;
  const Kind kind_;
  const int peer_;
  MPI_Request request_;
  const Staged staged_;
};

class MpiTransport final : public Transport {
 public:
  explicit MpiTransport(double start_seconds) : life_(start_seconds) {}

  const World& world() const override { return life_.started().world; }

  std::unique_ptr<Message> send(int to, Tag tag, const Staged& staged) override {
    return std::make_unique<MpiMessage>(calls_, MpiMessage::Kind::kSend, to,
                                        calls_->send(to, number(tag), staged.bytes), staged);
  }
  std::unique_ptr<Message> receive(int from, Tag tag, const Staged& staged) override {
    return std::make_unique<MpiMessage>(calls_, MpiMessage::Kind::kReceive, from,
                                        calls_->receive(from, number(tag), staged.bytes), staged);
  }

  // A wait polls at least every millisecond. A gap of seconds between two calls means that the machine was
  // suspended or all ranks were stopped. Only one second of such a gap counts, so that it does not look like
  // the silence of a rank.
  double now_seconds() override {
    constexpr std::chrono::seconds kLongest(1);
    const std::lock_guard lock(clock_mutex_);
    const Clock::time_point now = Clock::now();
    passed_ += std::min<Clock::duration>(now - asked_, kLongest);
    asked_ = now;
    return std::chrono::duration<double>(passed_).count();
  }
  void rest(double seconds) override {
    if (seconds == 0) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
    }
  }

  void leave(double seconds) override {
    calls_->end();
    life_.finalize(seconds);
  }

  void end_ranks(int status) override {
    // MPI_Abort makes the launcher end the other ranks. MPI_Abort can hang, and so can another thread's call
    // that holds the lock.
    constexpr std::chrono::seconds kPatience(5);
    std::thread([calls = calls_, status] { calls->end_ranks(status); }).detach();
    std::this_thread::sleep_for(kPatience);
  }

 private:
  // Exchanges of a channel may share a number: few of them are in flight at once, and messages do not
  // overtake each other.
  int number(Tag tag) const {
    constexpr std::uint64_t kNumbers = 64;
    // For kLastOfChannel, which is in flight together with other exchanges.
    constexpr std::uint64_t kLast = kNumbers - 1;
    const std::uint64_t within = tag.number == kLastOfChannel ? kLast : tag.number % kLast;
    const auto channels = (static_cast<std::uint64_t>(life_.started().largest_tag) + 1) / kNumbers;
    if (tag.channel >= channels) {
      throw DeviceError("MPI: no tags are left after " + std::to_string(channels) + " communicators");
    }
    return static_cast<int>(tag.channel * kNumbers + within);
  }

  std::mutex clock_mutex_;  // guards the members below
  Clock::time_point asked_ = Clock::now();
  Clock::duration passed_{};
  MpiLife life_;
  const std::shared_ptr<MpiCalls> calls_ = std::make_shared<MpiCalls>(life_.started().comm);
};

}  // namespace

std::shared_ptr<Transport> make_mpi_transport(const Launcher& launcher, double start_seconds) {
  auto transport = std::make_shared<MpiTransport>(start_seconds);
  if (const int size = transport->world().size; launcher.ranks && *launcher.ranks != size) {
    throw InvalidArgument(
        launcher.name + " has started " + std::to_string(*launcher.ranks) + " ranks, of which MPI sees " +
        std::to_string(size) +
        "; does the launcher belong to another MPI than the one with which this program was built?");
  }
  return transport;
}

}  // namespace vdnn
