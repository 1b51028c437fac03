// Measures the time that a submission takes on the submitting thread, on `sim` and on a device that does
// nothing. The latter shows the cost of the base class alone. Each piece of work has the operands of a
// convolution's forward pass: two reads, two writes. cpu_device_bench measures submissions on `cpu`.

#include <benchmark/benchmark.h>

#include <array>
#include <memory>

#include "bench/null_device.h"
#include "bench/side_by_side.h"
#include "vdnn/sim_device.h"

namespace vdnn::bench {
namespace {

constexpr int kPieces = 10'000;

// A compute stream and a copy stream, each ordered after a submission of the other.
class Submitter {
 public:
  explicit Submitter(Device& device)
      : device_(device), compute_(device.create_stream("compute")), copies_(device.create_stream("copies")) {
    device_.wait(compute_, Frontier(device_.submit(copies_, {})));
    device_.wait(copies_, Frontier(device_.submit(compute_, {})));
  }

  void submit() {
    for (int piece = 0; piece < kPieces; ++piece) {
      device_.submit(compute_, work_);
    }
  }
  void synchronize() { device_.synchronize_all(); }

 private:
  Device& device_;
  StreamId compute_;
  StreamId copies_;
  std::array<Access, 2> reads_{Access{.range = {.begin = 0x1000, .bytes = 0x1000}},
                               Access{.range = {.begin = 0x2000, .bytes = 0x1000}}};
  std::array<Access, 2> writes_{Access{.range = {.begin = 0x3000, .bytes = 0x1000}},
                                Access{.range = {.begin = 0x4000, .bytes = 0x1000}}};
  Work work_{.name = "convolution", .reads = reads_, .writes = writes_};
};

void submission(benchmark::State& state) {
  NullDevice nothing({.name = "null", .granule_bytes = 1 << 21, .alignment_bytes = 256});
  const std::unique_ptr<SimDevice> sim = make_sim_device({.profile = sim_profile("h100")});
  Submitter on_nothing(nothing);
  Submitter on_sim(*sim);
  side_by_side(state,
               {{"base class ns", [&] { on_nothing.submit(); }},
                {"sim ns", [&] { on_sim.submit(); }, [&] { on_sim.synchronize(); }}},
               [](double seconds) { return seconds / kPieces * 1e9; });
}
BENCHMARK(submission)->UseManualTime()->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace vdnn::bench

BENCHMARK_MAIN();
