#pragma once
// The number of cases of a test without a natural end: seeds, networks, points of failure.

#include <cstdint>
#include <optional>

#include "src/base/environment.h"

namespace vdnn::testing {

struct Extent {
  std::uint64_t usual;
  // Replaces `usual` under a sanitizer, if instrumented code is too slow for that.
  std::optional<std::uint64_t> under_sanitizers = std::nullopt;
  // Used with VDNN_LONG_RUN in the environment, as in ctest's second run of tests declared LONG.
  std::uint64_t in_long_run;
};

inline std::uint64_t extent(const Extent& of) {
  if (environment("VDNN_LONG_RUN")) {
    return of.in_long_run;
  }
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return of.under_sanitizers.value_or(of.usual);
#else
  return of.usual;
#endif
}

}  // namespace vdnn::testing
