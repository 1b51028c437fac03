#pragma once
// Collects the findings of the checks of the `sim` driver. Findings with the same text about pieces of one
// range become one finding.

#include <string>
#include <vector>

#include "vdnn/sim_device.h"

namespace vdnn {

// The range as text, for example `[0x10000000000, 0x10000000400)`.
std::string format_range(AddressRange range);

// Not synchronised.
class Findings {
 public:
  static constexpr std::size_t kMost = 100;

  // `what` is the finding's sentence without its bytes and full stop; the sentence names `first` and
  // `second`.
  void add(SimFinding::Kind kind, const std::string& first, const std::string& second, AddressRange range,
           const std::string& what);

  const std::vector<SimFinding>& all() const { return all_; }

 private:
  std::vector<SimFinding> all_;
  std::vector<std::string> sentences_;  // of each finding, without the bytes
};

}  // namespace vdnn
