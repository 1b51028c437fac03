// One rank, for mpi_test: `mpi_rank SCENARIO [MILLISECONDS]`. Prints its rank and what it observes. Exits
// with 0 if all went as expected, and through ProcessGroup::end_ranks() with 5 after an exception.

#include <mpi.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <map>
#include <span>
#include <thread>
#include <vector>

#include "src/base/environment.h"
#include "tests/dist/left_fold.h"
#include "vdnn/cpu_device.h"
#include "vdnn/error.h"
#include "vdnn/process_group.h"

namespace vdnn {
namespace {

using testing::brought;
using testing::left_fold;

constexpr std::uint64_t kMemoryBytes = 16 << 20;
constexpr int kAborted = 5;

void say(const std::string& text) {
  std::cout << text + "\n" << std::flush;  // one write, so that ranks' lines do not mix
}

void require(bool holds, const std::string& what) {
  if (!holds) {
    throw DataError("not so: " + what);
  }
}

[[noreturn]] void hang() {
  while (true) {
    pause();
  }
}

bool same_bits(std::span<const float> a, std::span<const float> b) {
  return testing::bits(a) == testing::bits(b);
}

struct Rank {
  explicit Rank(ProcessGroup& joined, const MpiOptions& options = {})
      : group(joined),
        device(make_cpu_device({.budget_bytes = kMemoryBytes, .host_budget_bytes = kMemoryBytes})),
        compute(device->create_stream("compute")),
        communication(device->create_stream("communication")),
        memory(device->reserve(kMemoryBytes)) {
    device->commit(memory);
    communicator = group.communicator(*device, options);
  }

  std::span<float> floats(std::size_t first, std::size_t count) const {
    return std::span(pointer_to<float>(memory.begin), kMemoryBytes / sizeof(float)).subspan(first, count);
  }
  static AddressRange range(std::span<float> values) {
    return {.begin = reinterpret_cast<std::uintptr_t>(values.data()), .bytes = values.size_bytes()};
  }
  // Fills `values` on the compute stream and reduces them on the communication stream.
  Point all_reduce(std::uint64_t seed, std::span<float> values) {
    device->submit(compute, {.name = "fill",
                             .reads = {},
                             .writes = {},
                             .cost = {},
                             .run = [values, seed, rank = group.rank()](void*) {
                               std::ranges::copy(brought(seed, rank, values.size()), values.begin());
                             }});
    device->wait(communication, device->frontier(compute));
    return communicator->all_reduce(communication, {.name = "sum", .range = range(values)});
  }
  void wait() { communicator->wait(device->frontier(communication)); }

  ProcessGroup& group;
  std::unique_ptr<Device> device;
  StreamId compute;
  StreamId communication;
  AddressRange memory;
  std::unique_ptr<Communicator> communicator;
};

// --- what works --------------------------------------------------------------------------------------------

void check_collectives(Rank& rank) {
  const int size = rank.group.size();
  constexpr std::size_t kCounts[] = {0, 1, 2, 3, 5, 255, 4096, 16'383, 1'000'000};
  std::size_t first = 0;
  for (std::uint64_t seed = 0; const std::size_t count : kCounts) {  // all in flight together
    rank.all_reduce(seed++, rank.floats(first, count));
    first += count;
  }
  rank.wait();
  first = 0;
  for (std::uint64_t seed = 0; const std::size_t count : kCounts) {
    require(same_bits(rank.floats(first, count), left_fold(seed++, size, count)),
            "the sum of " + std::to_string(count) + " is a left fold");
    first += count;
  }
  for (int root = 0; root < size; ++root) {
    constexpr std::size_t kCount = 1'500'000;
    const std::span<float> values = rank.floats(1, kCount);
    std::ranges::copy(brought(9, rank.group.rank(), kCount), values.begin());
    rank.communicator->broadcast(rank.communication, {.name = "weights", .range = Rank::range(values)}, root);
    rank.wait();
    require(same_bits(values, brought(9, root, kCount)), "every rank has the root's values");
  }
}

void check_two_communicators(Rank& rank) {
  const auto other = rank.group.communicator(*rank.device, {.staging_bytes = 64 << 10});
  const StreamId stream = rank.device->create_stream("other");
  constexpr std::size_t kCount = 100'000;
  const std::span<float> mine = rank.floats(kCount, kCount);
  for (int step = 0; step < 5; ++step) {
    std::ranges::copy(brought(7, rank.group.rank(), kCount), mine.begin());
    rank.all_reduce(6, rank.floats(0, kCount));
    const Point point = other->all_reduce(stream, {.name = "other", .range = Rank::range(mine)});
    rank.group.barrier();
    other->wait(Frontier(point));
    rank.wait();
    require(same_bits(rank.floats(0, kCount), left_fold(6, rank.group.size(), kCount)), "the first sum");
    require(same_bits(mine, left_fold(7, rank.group.size(), kCount)), "the other's sum");
  }
}

void check_group(ProcessGroup& group) {
  require(group.local_size() == group.size() && group.local_rank() == group.rank(), "all share one machine");
  const auto texts = group.gather_to_all(std::string(static_cast<std::size_t>(group.rank()), 'x'));
  for (std::size_t rank = 0; rank < texts.size(); ++rank) {
    require(texts[rank] == std::string(rank, 'x'), "texts come in rank order");
  }
  std::vector<std::byte> bytes(3 << 20, std::byte(group.rank() + 1));
  group.broadcast(bytes, group.size() - 1);
  require(std::ranges::count(bytes, std::byte(group.size())) == std::ssize(bytes), "bytes are the root's");
}

void work(ProcessGroup& group) {
  check_group(group);
  Rank rank(group);
  check_collectives(rank);
  check_two_communicators(rank);
  say("all is well on rank " + std::to_string(group.rank()) + " of " + std::to_string(group.size()));
}

// --- what fails --------------------------------------------------------------------------------------------

// How long ranks wait for a rank that hangs. A busy machine must not delay a healthy rank for longer.
constexpr double kPatience = 10;

// Rank 1 does `fatal` after some steps; the others wait for it in a collective.
void fail_in_a_collective(ProcessGroup& group, const std::function<void()>& fatal) {
  Rank rank(group, {.wait_seconds = kPatience});
  for (int step = 0; step < 3; ++step) {
    rank.all_reduce(1, rank.floats(0, 100'000));
    rank.wait();
  }
  if (group.rank() == 1) {
    fatal();
  }
  while (true) {
    rank.all_reduce(2, rank.floats(0, 100'000));
    rank.wait();
  }
}

// Stops all ranks for longer than their timeout, while the others wait for rank 1.
void stop_together(ProcessGroup& group) {
  Rank rank(group, {.wait_seconds = kPatience});
  group.barrier();
  const pid_t mine = getpid();
  if (fork() == 0) {
    usleep(500'000);
    kill(mine, SIGSTOP);
    sleep(static_cast<unsigned>(kPatience) + 3);
    kill(mine, SIGCONT);
    _exit(0);
  }
  if (group.rank() == 1) {
    for (int i = 0; i < 2; ++i) {  // the first sleep ends while the process is stopped
      std::this_thread::sleep_for(std::chrono::seconds(2));
    }
  }
  rank.all_reduce(1, rank.floats(0, 100'000));
  rank.wait();
  say("gone on");
}

void fail_in_a_barrier(ProcessGroup& group) {
  if (group.rank() == 1) {
    hang();
  }
  group.barrier("the checkpoint");
}

const std::map<std::string, std::function<void(ProcessGroup&)>> kScenarios = {
    {"works", work},
    {"dies", [](ProcessGroup& group) { fail_in_a_collective(group, [] { raise(SIGKILL); }); }},
    {"hangs", [](ProcessGroup& group) { fail_in_a_collective(group, hang); }},
    {"stops", [](ProcessGroup& group) { fail_in_a_collective(group, [] { raise(SIGSTOP); }); }},
    {"throws",
     [](ProcessGroup& group) { fail_in_a_collective(group, [] { throw DataError("the data set ended"); }); }},
    {"exits", [](ProcessGroup& group) { fail_in_a_collective(group, [] { _exit(7); }); }},
    {"stop_together", stop_together},
    {"hangs_in_barrier", fail_in_a_barrier},
    {"dies_after", [](ProcessGroup& group) { fail_in_a_collective(group, [] {}); }},
};

// Kills this process after `milliseconds`, whatever it is doing then.
void die_after(const std::string& milliseconds) {
  std::thread([moment = std::chrono::milliseconds(std::stoi(milliseconds))] {
    std::this_thread::sleep_for(moment);
    raise(SIGKILL);
  }).detach();
}

// Joins as a program that calls MPI itself and has initialised MPI with the thread level `threads`.
void join_own_mpi(int threads) {
  int provided = 0;
  require(MPI_Init_thread(nullptr, nullptr, threads, &provided) == MPI_SUCCESS && provided >= threads,
          "MPI has the threads");
  try {
    work(*ProcessGroup::join({}));
  } catch (const DeviceError& error) {
    say(error.what());
  }
  MPI_Finalize();
}

void join_twice() {
  work(*ProcessGroup::join({}));
  try {
    ProcessGroup::join({});
  } catch (const DeviceError& error) {
    say(error.what());
  }
}

void run(const std::string& scenario, const std::string& milliseconds) {
  say("pid " + std::to_string(getpid()));
  if (scenario == "own_mpi_of_many_threads") {
    return join_own_mpi(MPI_THREAD_MULTIPLE);
  }
  if (scenario == "own_mpi_of_one_thread_at_a_time") {
    return join_own_mpi(MPI_THREAD_SERIALIZED);
  }
  if (scenario == "joins_twice") {
    return join_twice();
  }
  if (environment("OMPI_COMM_WORLD_RANK") == "1") {
    if (scenario == "never_joins") {
      hang();
    } else if (scenario == "dies_first") {
      raise(SIGKILL);
    }
  }
  const auto group = ProcessGroup::join({.start_seconds = scenario == "never_joins" ? kPatience : 120,
                                         .wait_seconds = scenario == "hangs_in_barrier" ? kPatience : 120});
  if (scenario == "dies_after" && group->rank() == 1) {
    die_after(milliseconds);
  }
  try {
    kScenarios.at(scenario)(*group);
  } catch (const Error& error) {
    group->end_ranks(error.what(), kAborted);
    std::_Exit(kAborted);
  }
}

}  // namespace
}  // namespace vdnn

int main(int count, char** arguments) {
  try {
    vdnn::run(arguments[1], count > 2 ? arguments[2] : "");
    return 0;
  } catch (const std::exception& error) {
    vdnn::say(std::string("outside: ") + error.what());
    return 1;
  }
}
