#include "src/dist/process_group.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <functional>
#include <thread>
#include <utility>

#include "src/base/environment.h"
#include "src/dist/collective_checks.h"
#include "src/dist/exchange.h"
#include "src/dist/host_communicator.h"
#include "src/dist/launcher.h"
#include "src/dist/mpi/mpi_transport.h"
#include "vdnn/error.h"

namespace vdnn {

namespace {

void require_seconds(double seconds, const char* key) {
  if (!(seconds > 0)) {
    throw InvalidArgument(std::string("processes that train together: ") + key + " is " +
                          format_seconds(seconds) + "; it must be above 0");
  }
}

// The transport of a world of one rank, which sends and receives nothing.
class OnlyRank final : public Transport {
 public:
  OnlyRank() {
    std::array<char, 256> name{};
    if (gethostname(name.data(), name.size() - 1) == 0) {
      world_.host = name.data();
    }
  }

  const World& world() const override { return world_; }
  std::unique_ptr<Message> send(int to, Tag, const Staged&) override { refuse(to); }
  std::unique_ptr<Message> receive(int from, Tag, const Staged&) override { refuse(from); }
  double now_seconds() override {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  }
  void rest(double seconds) override { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }
  void leave(double) override {}
  void end_ranks(int) override {}

 private:
  [[noreturn]] static void refuse(int rank) {
    throw InvalidArgument("a message to or from rank " + std::to_string(rank) + " in a world of one");
  }
  World world_;
};

class TransportGroup final : public ProcessGroup {
 public:
  TransportGroup(std::shared_ptr<Transport> transport, const ProcessGroupOptions& options);
  ~TransportGroup() override;

  int rank() const override { return world_.rank; }
  int size() const override { return world_.size; }
  int local_rank() const override { return world_.local_rank; }
  int local_size() const override { return world_.local_size; }
  std::string host() const override { return world_.host; }

  void broadcast(std::span<std::byte> bytes, int root, std::string_view name) override;
  std::vector<std::string> gather_to_all(const std::string& mine, std::string_view name,
                                         const std::function<void()>& check) override {
    return gather(mine, name, options_.wait_seconds, check);
  }
  void barrier(std::string_view name) override { gather("", name, options_.wait_seconds); }
  void end_ranks(const std::string& cause, int status) override;
  std::unique_ptr<Communicator> communicator(Device& device, const MpiOptions& options) override;

 private:
  Transport& transport() { return *facts_->transport; }
  Tag next_tag() { return {.channel = 0, .number = exchanges_++}; }
  std::vector<std::string> gather(
      const std::string& mine, std::string_view name, double seconds,
      const std::function<void()>& check = [] {});
  // Sends `mine` to all other ranks, and receives theirs into `all`. The spans have the lengths of the
  // messages.
  void gather(std::span<const std::byte> mine, const std::vector<std::span<std::byte>>& all,
              std::string_view name, double seconds, const std::function<void()>& check);
  // How many seconds end_ranks() waits before it ends the job. In that time, another rank that has the same
  // problem, or whose failure made this rank fail, can print its own cause and end this rank.
  double head_start() const;
  void complete(
      Exchange& exchange, std::string_view name, double seconds, const std::function<void()>& check = [] {});
  template <class Work>
  void for_others(const Work& work) const {
    for (int rank = 0; rank < world_.size; ++rank) {
      if (rank != world_.rank) {
        work(rank);
      }
    }
  }

  const World world_;
  const ProcessGroupOptions options_;
  const std::string who_;  // begins each error message
  const std::shared_ptr<GroupFacts> facts_ = std::make_shared<GroupFacts>();
  const int exceptions_ = std::uncaught_exceptions();
  std::uint64_t exchanges_ = 0;
  std::uint32_t channels_ = 1;  // channels in use; channel 0 is the group's own
};

Staged make_staged(std::size_t bytes) {
  const auto memory = std::make_shared<std::byte[]>(bytes);
  return {.memory = memory, .bytes = {memory.get(), bytes}};
}

TransportGroup::TransportGroup(std::shared_ptr<Transport> transport, const ProcessGroupOptions& options)
    : world_(transport->world()),
      options_(options),
      who_("rank " + std::to_string(world_.rank) + " of " + std::to_string(world_.size) + " on " +
           world_.host) {
  facts_->transport = std::move(transport);
  // This exchange also connects all pairs of ranks, so that MPI sends later messages at once.
  facts_->hosts = gather(world_.host, "start", options.start_seconds);
}

TransportGroup::~TransportGroup() {
  if (std::uncaught_exceptions() > exceptions_ || facts_->failed.load()) {
    return;
  }
  try {
    barrier("the end");
    transport().leave(options_.wait_seconds);
  } catch (const std::exception&) {
    // The launcher notices that this rank has not ended MPI.
  }
}

void TransportGroup::complete(Exchange& exchange, std::string_view name, double seconds,
                              const std::function<void()>& check) {
  try {
    exchange.complete(seconds, who_ + ": " + std::string(name), facts_->hosts, check);
  } catch (const std::exception&) {
    facts_->failed.store(true);
    throw;
  }
}

void TransportGroup::gather(std::span<const std::byte> mine, const std::vector<std::span<std::byte>>& all,
                            std::string_view name, double seconds, const std::function<void()>& check) {
  const Tag tag = next_tag();
  const Staged outgoing = make_staged(mine.size());
  std::ranges::copy(mine, outgoing.bytes.begin());
  std::vector<Staged> incoming(all.size());
  Exchange exchange(transport());
  for_others([&](int rank) {
    Staged& theirs = incoming[static_cast<std::size_t>(rank)];
    theirs = make_staged(all[static_cast<std::size_t>(rank)].size());
    exchange.receive(rank, tag, theirs);
    exchange.send(rank, tag, outgoing);
  });
  complete(exchange, name, seconds, check);
  incoming[static_cast<std::size_t>(world_.rank)] = outgoing;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    std::ranges::copy(incoming[rank].bytes, all[rank].begin());
  }
}

std::vector<std::string> TransportGroup::gather(const std::string& mine, std::string_view name,
                                                double seconds, const std::function<void()>& check) {
  const auto size = static_cast<std::size_t>(world_.size);
  const std::uint64_t length = mine.size();
  std::vector<std::uint64_t> lengths(size);
  std::vector<std::span<std::byte>> into(size);
  std::ranges::transform(lengths, into.begin(),
                         [](std::uint64_t& each) { return std::as_writable_bytes(std::span(&each, 1)); });
  gather(std::as_bytes(std::span(&length, 1)), into, name, seconds, check);

  std::vector<std::string> texts(size);
  for (std::size_t rank = 0; rank < size; ++rank) {
    texts[rank].resize(lengths[rank]);
    into[rank] = std::as_writable_bytes(std::span(texts[rank]));
  }
  if (std::ranges::any_of(lengths, [](std::uint64_t each) { return each > 0; })) {
    gather(std::as_bytes(std::span(mine)), into, name, seconds, check);
  }
  return texts;
}

void TransportGroup::broadcast(std::span<std::byte> bytes, int root, std::string_view name) {
  if (root < 0 || root >= world_.size) {
    throw InvalidArgument(who_ + ": " + std::string(name) + " from rank " + std::to_string(root) +
                          ", which does not exist");
  }
  if (world_.size == 1) {
    return;
  }
  constexpr std::size_t kPiece = 1 << 20;
  const Tag tag = next_tag();
  const Staged staged = make_staged(std::min(bytes.size(), kPiece));
  while (!bytes.empty()) {
    const std::span<std::byte> piece = bytes.first(std::min(bytes.size(), kPiece));
    const Staged message{.memory = staged.memory, .bytes = staged.bytes.first(piece.size())};
    Exchange exchange(transport());
    if (root == world_.rank) {
      std::ranges::copy(piece, message.bytes.begin());
      for_others([&](int rank) { exchange.send(rank, tag, message); });
      complete(exchange, name, options_.wait_seconds);
    } else {
      exchange.receive(root, tag, message);
      complete(exchange, name, options_.wait_seconds);
      std::ranges::copy(message.bytes, piece.begin());
    }
    bytes = bytes.subspan(piece.size());
  }
}

// Several ranks fail at the same moment if they have the same problem: a missing file, a budget that is too
// small, a silent rank. Their delays differ, so that one rank prints the cause and ends the other ranks
// before they print it again. A rank that fails because of another rank's report waits longest.
double TransportGroup::head_start() const {
  constexpr double kAfterReportSeconds = 3;
  constexpr double kPerRankSeconds = 0.5;
  constexpr double kMostByRankSeconds = 2.5;
  return facts_->told.load() ? kAfterReportSeconds
                             : std::min(kMostByRankSeconds, kPerRankSeconds * world_.rank);
}

void TransportGroup::end_ranks(const std::string& cause, int status) {
  transport().rest(head_start());
  const std::string text = "vdnn: " + who_ + " ends the job: " + cause + "\n";
  // One call writes the whole line, so that no other output splits it. A failed write does no harm.
  [[maybe_unused]] const auto written = write(STDERR_FILENO, text.data(), text.size());
  transport().end_ranks(status);
}

std::unique_ptr<Communicator> TransportGroup::communicator(Device& device, const MpiOptions& options) {
  return make_host_communicator(device, options, facts_, channels_++);
}

}  // namespace

std::unique_ptr<ProcessGroup> make_process_group(std::shared_ptr<Transport> transport,
                                                 const ProcessGroupOptions& options) {
  return std::make_unique<TransportGroup>(std::move(transport), options);
}

std::unique_ptr<ProcessGroup> ProcessGroup::join(const ProcessGroupOptions& options) {
  require_seconds(options.start_seconds, "start_seconds");
  require_seconds(options.wait_seconds, "wait_seconds");
  const std::optional<Launcher> launcher = find_launcher(environment);
  const bool alone = !launcher || launcher->ranks == 1;
  return make_process_group(
      alone ? std::make_shared<OnlyRank>() : make_mpi_transport(*launcher, options.start_seconds), options);
}

bool launched_by_mpi() {
  return find_launcher(environment).has_value();
}

}  // namespace vdnn
