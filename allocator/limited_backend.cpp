#include "vdnn/limited_backend.h"

#include <algorithm>

namespace vdnn {

namespace {

PoolBackendProperties within(const SharedLimit& limit, PoolBackendProperties properties) {
  if (!properties.maps) {
    throw InvalidArgument(properties.name + ": cannot give memory back, so pools cannot share a limit on it");
  }
  properties.memory_bytes = std::min(properties.memory_bytes, limit.bytes());
  return properties;
}

}  // namespace

LimitedBackend::LimitedBackend(PoolBackend& target, SharedLimit& limit)
    : ForwardingBackend(target, within(limit, target.properties())), limit_(limit) {}

GranuleHandle LimitedBackend::create_granule() {
  const std::uint64_t bytes = properties().granule_bytes;
  if (!limit_.take(bytes)) {
    throw OutOfMemory(properties().name + ": the limit of several pools",
                      {.asked = bytes, .in_use = limit_.taken(), .budget = limit_.bytes()});
  }
  try {
    return ForwardingBackend::create_granule();
  } catch (...) {
    limit_.give_back(bytes);
    throw;
  }
}

void LimitedBackend::destroy_granule(GranuleHandle granule) {
  ForwardingBackend::destroy_granule(granule);
  limit_.give_back(properties().granule_bytes);
}

}  // namespace vdnn
