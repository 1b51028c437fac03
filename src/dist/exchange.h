#pragma once
// Messages that are in flight together, with a bounded wait for them.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "src/dist/transport.h"
#include "vdnn/error.h"

namespace vdnn {

// Returns for example "rank 1 (on node7)" or "ranks 1 (on node7), 2 (on node8)".
std::string name_ranks(const std::vector<int>& ranks, const std::vector<std::string>& hosts);

// Use an exchange from one thread only.
class Exchange {
 public:
  explicit Exchange(Transport& transport) : transport_(transport) {}

  void send(int to, Tag tag, const Staged& staged);
  void receive(int from, Tag tag, const Staged& staged);

  // Returns once every message is done. It calls `check` between polls; if `check` throws, the wait ends with
  // that exception. Throws DeviceError, "WHAT: heard nothing from RANKS for SECONDS s", if no message
  // completes for `seconds`.
  void complete(
      double seconds, const std::string& what, const std::vector<std::string>& hosts,
      const std::function<void()>& check = [] {});

 private:
  struct InFlight {
    int rank;
    std::unique_ptr<Message> message;
  };
  // Returns whether a message has completed since the last poll.
  bool advance();
  // The ranks whose messages are not done, ascending.
  std::vector<int> awaited() const;

  Transport& transport_;
  std::vector<InFlight> in_flight_;
};

}  // namespace vdnn
