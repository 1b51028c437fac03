#include "tests/fakes/cuda_order.h"

#include <algorithm>

namespace vdnn {

namespace {

// The race checker knows bytes by their address. If bytes are mapped at several addresses, it knows them by
// one number instead: kBytes, which is above all addresses, plus their position in all memory.
constexpr std::uint64_t kBytes = std::uint64_t{1} << 63U;

}  // namespace

StreamId CudaOrder::add_stream() {
  races_.add_stream();
  known_.emplace_back();
  return static_cast<StreamId>(known_.size() - 1);
}

RaceChecker::Report CudaOrder::reporter(const std::string& later, std::span<const Given> given) {
  return [this, &later, given](const Race& race) {
    AddressRange range = race.range;
    for (const auto& [bytes, address] : given) {
      if (AddressRange{.begin = address, .bytes = bytes.bytes}.contains(range)) {
        return;  // this race is reported for the bytes
      }
      if (bytes.contains(range)) {
        range.begin = address + (range.begin - bytes.begin);
        break;
      }
    }
    findings_.add(SimFinding::Kind::kRace, race.earlier, later, range, describe(race, later));
  };
}

std::vector<Access> CudaOrder::resolve(std::span<const Access> accesses, std::vector<Given>& given) const {
  std::vector<Access> result;
  for (const Access& access : accesses) {
    shared_.visit(access.range, [&](AddressRange piece, const std::uint64_t* shift) {
      result.push_back({.range = piece});
      if (shift != nullptr) {
        given.push_back(
            {.bytes = {.begin = piece.begin + *shift, .bytes = piece.bytes}, .address = piece.begin});
        result.push_back({.range = given.back().bytes});
      }
    });
  }
  return result;
}

void CudaOrder::submitted(StreamId stream, std::string_view name, std::span<const Access> reads,
                          std::span<const Access> writes) {
  const Point point{.stream = stream, .count = known_[stream].count(stream) + 1};
  const std::string later(name);
  std::vector<Given> given;
  const std::vector<Access> read = resolve(reads, given);
  const std::vector<Access> written = resolve(writes, given);
  races_.submit(point, known_[stream], later, read, written, reporter(later, given));
  known_[stream].join(point);
}

void CudaOrder::share(AddressRange range, std::uint64_t offset) {
  const std::uint64_t name = kBytes + offset;
  races_.copy(range, name);
  shared_.assign(range, name - range.begin);
}

void CudaOrder::end_sharing(std::uint64_t offset, std::uint64_t bytes) {
  gone({.begin = kBytes + offset, .bytes = bytes});
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
