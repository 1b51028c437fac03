#pragma once
// A batch for any tape.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "src/base/random.h"
#include "vdnn/tape.h"

namespace vdnn::testing {

// Inputs of a step, with the types of the tape. Every network has two classes.
inline std::vector<std::vector<std::byte>> random_inputs(const Tape& tape, std::uint64_t seed) {
  SplitMix64 random(seed);
  std::vector<std::vector<std::byte>> inputs;
  for (const ValueId id : tape.inputs()) {
    const Value& value = tape.value(id);
    const auto write = [&](const auto& numbers) {
      const auto bytes = std::as_bytes(std::span(numbers));
      inputs.emplace_back(bytes.begin(), bytes.end());
    };
    if (value.type.data_type == DataType::kI32) {
      std::vector<std::int32_t> classes(value.type.elements());
      for (std::int32_t& one : classes) {
        one = static_cast<std::int32_t>(random.next() % 2);
      }
      write(classes);
    } else {
      std::vector<float> numbers(value.type.elements());
      for (float& one : numbers) {
        one = random.symmetric();
      }
      write(numbers);
    }
  }
  return inputs;
}

}  // namespace vdnn::testing
