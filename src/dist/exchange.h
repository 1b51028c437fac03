#pragma once
// Messages that are in flight together, with a bounded wait for them.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "src/dist/transport.h"
#include "vdnn/error.h"

namespace vdnn {

// "rank 1 (on node7)", "ranks 1 (on node7), 2 (on node8)".
std::string name_ranks(const std::vector<int>& ranks, const std::vector<std::string>& hosts);

// Only one thread may use an exchange.
class Exchange {
 public:
  explicit Exchange(Transport& transport) : transport_(transport) {}

  void send(int to, Tag tag, const Staged& staged);
  void receive(int from, Tag tag, const Staged& staged);

  // Returns once every message is done. It calls `check` between polls; an exception of `check` ends the
  // wait. Throws DeviceError, "WHAT: heard nothing from RANKS for SECONDS s", if no message completes in that
  // time.
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
