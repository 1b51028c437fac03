#pragma once
// The collectives of a host communicator, as work that runs on a stream, and the messages by which ranks
// learn of each other's failures.
//
// An all-reduce is a reduce-scatter and an all-gather. It works piece by piece, so that staging memory is
// bounded. Several small ranges share a piece, so that small parameters do not cost one round each. Rank c
// owns part c of each piece. It receives that part from every rank, adds the received values in fp32 in the
// order of the ranks, and sends the sums to all ranks. Sums of narrow elements are rounded before they are
// sent. Only the owner computes a sum, so all ranks have the same bits, which depend only on the inputs and
// the order of the ranks.
//
// Messages are sent from staging memory and received into it, never directly from or into a range of a
// collective. The transport may access the memory of an abandoned message even after that range has been
// freed.
//
// Each rank also posts a receive for one message from each other rank: the reason why that rank gave up.

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
// destroyed keeps this object alive. When that work runs, it finds the object closed and throws.
class HostCollectives {
 public:
  // Messages of exceptions begin with `who`.
  HostCollectives(std::string who, const MpiOptions& options, std::shared_ptr<GroupFacts> group,
                  std::uint32_t channel);

  std::uint64_t staging_bytes() const { return staging_bytes_; }

  // Run collective `number` (from 0) of this communicator; messages of errors name it as `what`. `values` are
  // places in device memory, in the order in which they are sent; each place has whole elements of `type`.
  // After a failure on this rank, or once another rank has given up, both functions throw the first cause.
  void all_reduce(std::uint64_t number, const std::string& what, const Places& values, DataType type);
  void broadcast(std::uint64_t number, const std::string& what, const Places& values, int root);

  // Receives other ranks' reports of failures. Throws the first cause if this rank or another one has failed.
  void check();
  // Records `cause` if no cause has been recorded yet, and reports it to the other ranks.
  void end(const std::exception_ptr& cause);
  void end(const std::string& cause);
  // Calls end(), then throws the first cause.
  [[noreturn]] void fail(const std::exception_ptr& cause);
  // Returns once no collective runs; queued work will throw. Before the call, either all collectives must be
  // done, or end() must have been called. A running collective notices end() only at its next poll, and this
  // call waits for that.
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
  std::uint64_t cut_bytes_ = 0;  // bytes of staging that cut() has handed out
  std::span<std::byte> words_;   // this rank's report, then the other ranks' reports, by rank
  // Staging memory for the values of a piece, which the result replaces.
  std::span<std::byte> piece_;
  // Staging memory for this rank's part of a piece, as each rank has sent it.
  std::span<std::byte> parts_;

  std::mutex running_;      // held while a collective runs
  std::uint64_t next_ = 0;  // number of the next collective; guarded by running_

  std::mutex mutex_;  // guards the members below
  std::exception_ptr cause_;
  std::vector<std::unique_ptr<Message>> heard_;  // by rank; null: no report is expected
};

}  // namespace vdnn
