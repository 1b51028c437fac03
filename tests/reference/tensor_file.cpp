#include "tests/reference/tensor_file.h"

#include <exception>
#include <iostream>

namespace vdnn::testing {

void write_tensors(const std::filesystem::path& path, const std::vector<NamedTensor>& all) {
  std::vector<SafetensorsTensor> tensors;
  tensors.reserve(all.size());
  for (const NamedTensor& one : all) {
    tensors.push_back(one.tensor);
  }
  SafetensorsWriter writer(path, tensors);
  for (const NamedTensor& one : all) {
    writer.write(one.data);
  }
  writer.commit();
}

int dump_main(int argc, char** argv, void (*dump)(const std::filesystem::path& directory)) {
  const std::string program = std::filesystem::path(argv[0]).filename();
  if (argc != 2) {
    std::cerr << "usage: " << program << " DIRECTORY\n";
    return 2;
  }
  try {
    dump(argv[1]);
  } catch (const std::exception& error) {
    std::cerr << program << ": " << error.what() << "\n";
    return 1;
  }
  return 0;
}

}  // namespace vdnn::testing
