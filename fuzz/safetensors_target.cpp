// Reads and rewrites safetensors files (src/formats/safetensors.cpp).

#include <algorithm>
#include <filesystem>

#include "fuzz/scratch.h"
#include "fuzz/target.h"
#include "vdnn/error.h"
#include "vdnn/safetensors.h"

namespace vdnn::fuzz {

namespace {

namespace fs = std::filesystem;
using Data = std::vector<std::byte>;

std::vector<Data> data_of(const SafetensorsFile& file) {
  std::vector<Data> data;
  for (const SafetensorsTensor& tensor : file.tensors()) {
    data.emplace_back(tensor.bytes());
    file.read(tensor.name, data.back());
  }
  return data;
}

void write(const fs::path& path, const std::vector<SafetensorsTensor>& tensors,
           const SafetensorsMetadata& metadata, const std::vector<Data>& data) {
  SafetensorsWriter writer(path, tensors, metadata);
  for (const Data& bytes : data) {
    writer.write(bytes);
  }
  writer.commit();
}

}  // namespace

bool run_safetensors(Input input) {
  const fs::path path = scratch().write("input", input);
  const auto file = attempt<DataError>([&] { return SafetensorsFile(path); });
  if (!file) {
    return false;
  }
  const std::vector<Data> data = data_of(*file);
  std::uint64_t bytes = 0;
  for (const Data& tensor : data) {
    bytes += tensor.size();
  }
  // Eight bytes for the header's length, and at least two for the header.
  require(bytes + 10 <= input.size(), "tensors are inside the file and do not overlap");
  const Bytes all_data(input.end() - static_cast<std::ptrdiff_t>(bytes), input.end());
  auto next = all_data.begin();
  for (const Data& tensor : data) {
    require(std::equal(tensor.begin(), tensor.end(), next,
                       [](std::byte a, std::uint8_t b) { return std::to_integer<std::uint8_t>(a) == b; }),
            "the data extend to the end of the file");
    next += static_cast<std::ptrdiff_t>(tensor.size());
  }
  const fs::path again = scratch().directory() / "again";
  write(again, file->tensors(), file->metadata(), data);
  const SafetensorsFile back(again);
  require(back.tensors() == file->tensors() && back.metadata() == file->metadata() && data_of(back) == data,
          "rewritten tensors are equal");
  return true;
}

std::vector<Seed> safetensors_seeds() {
  const auto seed = [](const std::string& name, const std::vector<SafetensorsTensor>& tensors,
                       const SafetensorsMetadata& metadata) {
    std::vector<Data> data;
    data.reserve(tensors.size());
    for (const SafetensorsTensor& tensor : tensors) {
      data.emplace_back(tensor.bytes(), std::byte{0x3f});
    }
    const fs::path path = scratch().directory() / "seed";
    write(path, tensors, metadata, data);
    return Seed{.name = name, .bytes = read_bytes(path)};
  };
  return {seed("empty", {}, {}), seed("one", {{.name = "conv1.filter", .dims = {2, 1, 3, 3}}}, {}),
          seed("many",
               {{.name = "scalar", .dims = {}},
                {.name = "", .data_type = DataType::kI32, .dims = {2}},
                {.name = "none", .dims = {0, 4}},
                {.name = "\xc3\xa9\"\\\n", .data_type = DataType::kU8, .dims = {3, 1}}},
               {{"format", "pt"}, {"", "\xe2\x82\xac"}})};
}

}  // namespace vdnn::fuzz
