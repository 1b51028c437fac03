// Runs any program on several streams that obeys the contract of the stream pool. The pool does not see the
// streams' work, but the race checker of `sim` does, and must find no unordered use.
//
// The input is two bytes per choice.

#include <string>

#include "fuzz/target.h"
#include "src/base/random.h"
#include "tests/allocator/foreign_program.h"
#include "vdnn/sim_device.h"
#include "vdnn/stream_pool.h"

namespace vdnn::fuzz {

namespace {

constexpr StreamId kStreams = 3;

class Choices {
 public:
  explicit Choices(Input input) : left_(input) {}

  bool any_left() const { return !left_.empty(); }
  std::uint64_t below(std::uint64_t bound) {
    if (left_.empty()) {
      return 0;
    }
    const std::uint64_t number = left_[0] | std::uint64_t{left_[1]} << 8;
    left_ = left_.subspan(2);
    return number % bound;
  }

 private:
  Input left_;
};

}  // namespace

bool run_stream_pool(Input input) {
  if (input.size() % 2 != 0) {
    return false;
  }
  SimDeviceOptions options;
  options.profile = sim_profile("cpu");
  options.check_races = true;
  options.check_versions = true;
  const auto device = make_sim_device(options);
  for (StreamId stream = 0; stream < kStreams; ++stream) {
    device->create_stream("stream " + std::to_string(stream));
  }
  const auto backend = make_pool_backend(*device);
  Choices choices(input);
  const Choice choice = [&choices](std::uint64_t bound) { return choices.below(bound); };
  StreamPool pool(*backend, foreign_options(choice));
  ForeignProgram program(*device, *backend, pool, kStreams, choice);
  while (choices.any_left()) {
    program.step();
  }
  program.finish();
  require(device->findings().empty(), "every use of a block is ordered, but " +
                                          (device->findings().empty() ? "" : device->findings()[0].text));
  require(device->counters().committed_bytes == 0, "the pool releases all memory");
  return true;
}

std::vector<Seed> stream_pool_seeds() {
  std::vector<Seed> seeds;
  for (std::uint64_t seed = 0; seed < 6; ++seed) {
    SplitMix64 random(seed);
    Bytes bytes;
    for (int i = 0; i < 1200; ++i) {
      bytes.push_back(static_cast<std::uint8_t>(random.next()));
    }
    seeds.push_back({.name = "program-" + std::to_string(seed), .bytes = std::move(bytes)});
  }
  return seeds;
}

}  // namespace vdnn::fuzz
