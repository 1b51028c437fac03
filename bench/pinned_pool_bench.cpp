// The cost of a pair of allocate and free of page-locked memory for the submitting thread, on a device that
// does nothing. The benchmark compares the pool with page-locking new memory each time, on `cpu`.

#include <benchmark/benchmark.h>

#include <cstdint>
#include <memory>

#include "bench/null_device.h"
#include "bench/side_by_side.h"
#include "vdnn/cpu_device.h"
#include "vdnn/pinned_pool.h"

namespace vdnn::bench {
namespace {

constexpr int kPairs = 100;
constexpr std::uint64_t kBytes = 1 << 20;

void pinned_reuse(benchmark::State& state) {
  const std::unique_ptr<Device> cpu = make_cpu_device({});
  NullDevice nothing(cpu->properties());
  const Frontier used(nothing.submit(nothing.create_stream("stream"), {}));
  PinnedPool pool(nothing);
  const auto from_the_pool = [&] {
    for (int pair = 0; pair < kPairs; ++pair) {
      pool.free(pool.allocate(kBytes, 0).value(), used);
    }
  };
  const auto from_the_system = [&] {
    for (int pair = 0; pair < kPairs; ++pair) {
      cpu->free_pinned(cpu->allocate_pinned(kBytes));
    }
  };
  side_by_side(state, {{"pinned pool ns", from_the_pool}, {"page-locking ns", from_the_system}},
               [](double seconds) { return seconds * 1e9 / kPairs; });
}
BENCHMARK(pinned_reuse)->Name("pinned_pool/reuse_at_once")->UseManualTime();

}  // namespace
}  // namespace vdnn::bench
