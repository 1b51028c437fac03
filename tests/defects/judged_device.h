#pragma once
// Devices that check the order of their work, so that the same planted defect of order is found on each:
// `sim` by its own checks, the `cuda` driver over the fake runtime by CUDA's rules.

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

  // Submitted work counts as making its declared accesses.
  virtual Device& device() = 0;
  virtual std::vector<SimFinding> findings() const = 0;
};

enum class Judge : std::uint8_t { kSim, kCuda };
inline constexpr Judge kJudges[] = {Judge::kSim, Judge::kCuda};
std::string to_string(Judge judge);
std::ostream& operator<<(std::ostream& out, Judge judge);

// Executes in an order drawn from `seed`; on `cuda` the order only decides the answers of queries.
std::unique_ptr<JudgedDevice> make_judged_device(Judge judge, std::uint64_t seed);

}  // namespace vdnn::testing
