#pragma once
// Writes tensors to a safetensors file, for scripts that repeat the computation with PyTorch.

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "vdnn/safetensors.h"

namespace vdnn::testing {

struct NamedTensor {
  SafetensorsTensor tensor;
  std::vector<std::byte> data;
};

template <class Number>
NamedTensor named(const std::string& name, DataType type, const Dims& dims,
                  const std::vector<Number>& numbers) {
  const auto bytes = std::as_bytes(std::span(numbers));
  return {.tensor = {.name = name, .data_type = type, .dims = dims}, .data = {bytes.begin(), bytes.end()}};
}

void write_tensors(const std::filesystem::path& path, const std::vector<NamedTensor>& all);

// The main function of a program whose one argument is the directory that `dump` writes to.
int dump_main(int argc, char** argv, void (*dump)(const std::filesystem::path& directory));

}  // namespace vdnn::testing
