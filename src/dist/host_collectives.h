#pragma once
// What a host communicator's work does when a stream gets to it, and how its ranks learn of failures.
//
// All-reduce is a reduce-scatter and an all-gather, piece by piece, so that staging is bounded; a piece is of
// as many places as fill it, so that small parameters do not cost a round each. Rank c owns part c of a
// piece, receives that part from every rank, folds them in rank order, in fp32, and sends the result to all,
// which narrow elements are rounded for. Every sum is made once, by its owner, so all ranks have the same
// bits, and these depend on nothing but the inputs and their order. Messages are never sent from or received
// into the range itself: a broken-off message may be read or written later than the range is anybody's.
//
// Beside them each rank has a receive posted for one message from each other rank: why that one gave up.

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

// Thread-safe; the collectives run one after another. Work that is still queued when its communicator goes
// keeps this and finds it closed.
class HostCollectives {
 public:
  // `who` begins what is thrown.
  HostCollectives(std::string who, const MpiOptions& options, std::shared_ptr<GroupFacts> group,
                  std::uint32_t channel);

  std::uint64_t staging_bytes() const { return staging_bytes_; }

  // Collective `number` (from 0) of this communicator, `what` in words, of values that lie in these places of
  // device memory, one behind another as the messages have them; each place has whole elements of `type`.
  // Throw the first cause, once something has failed here or another rank has given up.
  void all_reduce(std::uint64_t number, const std::string& what, const Places& values, DataType type,
                  Reduction reduction);
  void broadcast(std::uint64_t number, const std::string& what, const Places& values, int root);

  // Throws the first cause, once there is one; hears what other ranks say.
  void check();
  // Keeps `cause` where it is the first, and tells the other ranks.
  void end(const std::exception_ptr& cause);
  void end(const std::string& cause);
  [[noreturn]] void fail(const std::exception_ptr& cause);
  // Returns once nothing runs; what is queued will throw. What is in flight must be done or broken off.
  void close();

 private:
  class Run;

  std::span<std::byte> cut(std::uint64_t bytes);
  Staged staged(std::span<std::byte> bytes) const { return {.memory = memory_, .bytes = bytes}; }
  void listen();
  // What another rank has said, or null. Guarded by the caller.
  std::exception_ptr hear();
  void tell(const std::exception_ptr& cause);
  // `body(run)` as collective `number`.
  void run(std::uint64_t number, const std::string& what, const std::function<void(Run&)>& body);

  const std::string who_;
  const MpiOptions options_;
  const std::shared_ptr<GroupFacts> group_;
  const std::uint32_t channel_;
  const int rank_;
  const int size_;

  std::shared_ptr<std::byte[]> memory_;
  std::uint64_t staging_bytes_ = 0;
  std::uint64_t cut_bytes_ = 0;  // of it
  std::span<std::byte> words_;   // to tell others why, then what they have told, by rank
  // Of whole pieces: the values, which are replaced by what comes out; the parts that others sent, by rank.
  std::span<std::byte> piece_;
  std::span<std::byte> parts_;

  std::mutex running_;      // held by what runs
  std::uint64_t next_ = 0;  // collective; guarded by running_

  std::mutex mutex_;  // guards what follows
  std::exception_ptr cause_;
  std::vector<std::unique_ptr<Message>> heard_;  // by rank; null: nothing to hear (any more)
};

}  // namespace vdnn
