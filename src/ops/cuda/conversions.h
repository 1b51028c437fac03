#pragma once
// Conversions between floating-point types, on the stream.

#include <cstdint>
#include <string>
#include <type_traits>

#include "src/ops/cuda/launcher.h"
#include "src/ops/formats.h"
#include "vdnn/error.h"
#include "vdnn/tensor.h"

namespace vdnn::cuda {

// An array of numbers in memory.
struct TypedNumbers {
  DataType type = DataType::kF32;
  std::uint64_t begin = 0;
};

// Converts `from` to the type of `to`, rounded to the nearest. The two types must differ. Both arrays must be
// aligned to 16 bytes and must not overlap.
inline void launch_conversion(const Launcher& launcher, const TypedNumbers& from, const TypedNumbers& to,
                              std::uint64_t elements) {
  ops::with_format(from.type, [&]<class From>(From) {
    ops::with_format(to.type, [&]<class To>(To) {
      if constexpr (std::is_same_v<From, To>) {
        throw InvalidArgument(std::string("a conversion from ") + to_string(from.type) + " to itself");
      } else {
        launcher.launch(Conversion<From, To>{.from = pointer_to<const Stored<From>>(from.begin),
                                             .to = pointer_to<Stored<To>>(to.begin),
                                             .elements = elements});
      }
    });
  });
}

}  // namespace vdnn::cuda
