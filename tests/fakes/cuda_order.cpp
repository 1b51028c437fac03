#include "fakes/cuda_order.h"

namespace vdnn {

StreamId CudaOrder::add_stream() {
  races_.add_stream();
  known_.emplace_back();
  return static_cast<StreamId>(known_.size() - 1);
}

RaceChecker::Report CudaOrder::reporter(const std::string& later) {
  return [this, &later](const Race& race) {
    findings_.add(SimFinding::Kind::kRace, race.earlier, later, race.range, describe(race, later));
  };
}

void CudaOrder::submitted(StreamId stream, std::string_view name, std::span<const Access> reads,
                          std::span<const Access> writes) {
  const Point point{.stream = stream, .count = known_[stream].count(stream) + 1};
  const std::string later(name);
  races_.submit(point, known_[stream], later, reads, writes, reporter(later));
  known_[stream].join(point);
}

void CudaOrder::host_accesses(AddressRange range, const std::string& name) {
  races_.release(range, reporter(name));
}

void CudaOrder::gone(AddressRange range) {
  races_.release(range, [](const Race&) {});
}

void CudaOrder::missing(AddressRange range, std::string_view name, const std::string& what) {
  const std::string later(name);
  findings_.add(SimFinding::Kind::kNotCommitted, "", later, range, "'" + later + "' is given " + what);
}

}  // namespace vdnn
