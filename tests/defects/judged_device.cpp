#include "tests/defects/judged_device.h"

#include <ostream>

#include "streams/cuda/cuda_device.h"
#include "tests/fakes/fake_cuda.h"
#include "tests/fakes/launching_device.h"

namespace vdnn::testing {

namespace {

class JudgedSim final : public JudgedDevice {
 public:
  explicit JudgedSim(std::uint64_t seed)
      : sim_(make_sim_device({.profile = sim_profile("cpu"),
                              .check_races = true,
                              .check_versions = true,
                              .order_seed = seed})) {}

  Device& device() override { return *sim_; }
  std::vector<SimFinding> findings() const override { return sim_->findings(); }

 private:
  std::unique_ptr<SimDevice> sim_;
};

class JudgedCuda final : public JudgedDevice {
 public:
  explicit JudgedCuda(std::uint64_t seed)
      : fake_(std::make_shared<FakeCuda>(FakeCudaOptions{.seed = seed, .logical_memory = true})) {}

  Device& device() override { return launching_; }
  std::vector<SimFinding> findings() const override { return fake_->findings(); }

 private:
  std::shared_ptr<FakeCuda> fake_;
  std::unique_ptr<Device> cuda_ = make_cuda_device({}, fake_);
  LaunchingDevice launching_{*cuda_, fake_};
};

}  // namespace

std::string to_string(Judge judge) {
  return judge == Judge::kSim ? "sim" : "cuda";
}

std::ostream& operator<<(std::ostream& out, Judge judge) {
  return out << to_string(judge);
}

std::unique_ptr<JudgedDevice> make_judged_device(Judge judge, std::uint64_t seed) {
  if (judge == Judge::kSim) {
    return std::make_unique<JudgedSim>(seed);
  }
  return std::make_unique<JudgedCuda>(seed);
}

}  // namespace vdnn::testing
