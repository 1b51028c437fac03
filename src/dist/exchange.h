#pragma once
// Messages that are in flight together, and the wait for them that ends.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "src/dist/transport.h"
#include "vdnn/error.h"

namespace vdnn {

// "rank 1 (on node7)", "ranks 1 (on node7), 2 (on node8)".
std::string name_ranks(const std::vector<int>& ranks, const std::vector<std::string>& hosts);

// Belongs to one thread.
class Exchange {
 public:
  explicit Exchange(Transport& transport) : transport_(transport) {}

  void send(int to, Tag tag, const Staged& staged);
  void receive(int from, Tag tag, const Staged& staged);

  // Returns once every message is done. `check` is called between polls; what it throws ends the wait. Throws
  // DeviceError, "WHAT: heard nothing from RANKS for SECONDS s", where no message is done for so long.
  void complete(
      double seconds, const std::string& what, const std::vector<std::string>& hosts,
      const std::function<void()>& check = [] {});

 private:
  struct InFlight {
    int rank;
    std::unique_ptr<Message> message;
  };
  // Whether any message is done that was not.
  bool advance();
  // The ranks of those that are not, ascending.
  std::vector<int> awaited() const;

  Transport& transport_;
  std::vector<InFlight> in_flight_;
};

}  // namespace vdnn
