#pragma once
// The collectives of a host communicator as they run on its stream, and the messages by which its ranks learn
// of failures.
//
// All-reduce is a reduce-scatter and an all-gather, piece by piece, so that staging is bounded. A piece holds
// as many ranges as fill it, so that small parameters do not cost a round each. Rank c owns part c of a
// piece. It receives that part from every rank, folds the parts in rank order, in fp32, and sends the result
// to all; narrow elements are rounded before they are sent. The owner alone makes each sum, so all ranks have
// the same bits, which depend only on the inputs and their order. Messages are sent from and received into
// staging memory, never the range itself: a message that was broken off may still access its memory after the
// range has been freed.
//
// Each rank also has a receive posted for one message from each other rank: the reason why that rank gave up.

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "src/dist/host_communicator.h"
#include "src/dist/transport.h"
#include "vdnn/process_group.h"

namespace vdnn {

using Places = std::vector<std::span<std::byte>>;

// Thread-safe; the collectives run one after another. Work that is still queued when its communicator is
// destroyed keeps this object and finds it closed.
class HostCollectives {
 public:
  // Messages of exceptions begin with `who`.
  HostCollectives(std::string who, const MpiOptions& options, std::shared_ptr<GroupFacts> group,
                  std::uint32_t channel);

  std::uint64_t staging_bytes() const { return staging_bytes_; }

  // Run collective `number` (from 0) of this communicator; errors call it `what`. `values` are places in
  // device memory, in the order of the messages; each place has whole elements of `type`. After a failure
  // here, or once another rank has given up, both functions throw the first cause.
  void all_reduce(std::uint64_t number, const std::string& what, const Places& values, DataType type);
  void broadcast(std::uint64_t number, const std::string& what, const Places& values, int root);

  // Receives other ranks' reports, and throws the first cause if there is one.
  void check();
  // Records `cause` if it is the first, and reports it to the other ranks.
  void end(const std::exception_ptr& cause);
  void end(const std::string& cause);
  [[noreturn]] void fail(const std::exception_ptr& cause);
  // Returns once nothing runs; queued work will throw. Collectives in flight must be done or broken off.
  void close();

 private:
  class Run;

  std::span<std::byte> cut(std::uint64_t bytes);
  Staged staged(std::span<std::byte> bytes) const { return {.memory = memory_, .bytes = bytes}; }
  void listen();
  // The cause that another rank has reported, or null. The caller holds the lock.
  std::exception_ptr hear();
  void tell(const std::exception_ptr& cause);
  // Calls body(run) as collective `number`.
  void run(std::uint64_t number, const std::string& what, const std::function<void(Run&)>& body);

  const std::string who_;
  const MpiOptions options_;
  const std::shared_ptr<GroupFacts> group_;
  const std::uint32_t channel_;
  const int rank_;
  const int size_;

  std::shared_ptr<std::byte[]> memory_;
  std::uint64_t staging_bytes_ = 0;
  std::uint64_t cut_bytes_ = 0;  // bytes of staging already handed out
  std::span<std::byte> words_;   // this rank's report, then those of the others, by rank
  // Staging of a piece: its values, replaced by the result; and the parts that others sent, by rank.
  std::span<std::byte> piece_;
  std::span<std::byte> parts_;

  std::mutex running_;      // held while a collective runs
  std::uint64_t next_ = 0;  // number of the next collective; guarded by running_

  std::mutex mutex_;  // guards the members below
  std::exception_ptr cause_;
  std::vector<std::unique_ptr<Message>> heard_;  // by rank; null: no report is expected
};

}  // namespace vdnn
