// Writes the allocation logs of the zoo and of synthetic programs, one file each:
//   record_allocations tests/data/traces

#include <exception>
#include <fstream>
#include <iostream>
#include <string>

#include "bench/synthetic_allocations.h"
#include "bench/zoo_allocations.h"
#include "vdnn/error.h"

namespace vdnn::bench {
namespace {

void record(const std::string& path, const AllocationLog& log) {
  std::ofstream file(path);
  write_allocation_log(file, log);
  file.close();
  if (!file) {
    throw DataError(path + ": cannot be written");
  }
}

}  // namespace
}  // namespace vdnn::bench

int main(int count, char** arguments) {
  if (count != 2) {
    std::cerr << "usage: record_allocations FOLDER\n";
    return 2;
  }
  try {
    const std::string folder = arguments[1];
    const auto record = [&](const std::string& name, const vdnn::AllocationLog& log) {
      vdnn::bench::record(folder + "/" + name + ".txt", log);
    };
    vdnn::bench::each_zoo_log(record);
    vdnn::bench::each_synthetic_log(record);
  } catch (const std::exception& error) {
    std::cerr << "record_allocations: " << error.what() << "\n";
    return 1;
  }
}
