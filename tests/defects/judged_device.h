#pragma once
// Devices that check the order of their work, so that tests can plant the same defect on each. `sim` uses its
// own checks; the `cuda` driver runs over the fake runtime, which checks by CUDA's rules.

#include <cstdint>
#include <iosfwd>
#include <memory>
#include <string>
#include <vector>

#include "vdnn/sim_device.h"

namespace vdnn::testing {

class JudgedDevice {
 public:
  JudgedDevice() = default;
  JudgedDevice(const JudgedDevice&) = delete;
  JudgedDevice& operator=(const JudgedDevice&) = delete;
  virtual ~JudgedDevice() = default;

  // The judge assumes that submitted work makes its declared accesses.
  virtual Device& device() = 0;
  virtual std::vector<SimFinding> findings() const = 0;
};

enum class Judge : std::uint8_t { kSim, kCuda };
inline constexpr Judge kJudges[] = {Judge::kSim, Judge::kCuda};
std::string to_string(Judge judge);
std::ostream& operator<<(std::ostream& out, Judge judge);

// The order of execution is drawn from `seed`; on `cuda`, the order only determines the answers of queries.
std::unique_ptr<JudgedDevice> make_judged_device(Judge judge, std::uint64_t seed);

}  // namespace vdnn::testing
