// Writes the seeds of all targets as DIRECTORY/TARGET/SEED. libFuzzer starts from them.

#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>

#include "fuzz/target.h"

namespace {

void write_seeds(const std::filesystem::path& directory) {
  for (const vdnn::fuzz::Target& target : vdnn::fuzz::targets()) {
    const std::filesystem::path place = directory / target.name;
    std::filesystem::create_directories(place);
    for (const vdnn::fuzz::Seed& seed : target.seeds()) {
      std::ofstream file(place / seed.name, std::ios::binary);
      file.exceptions(std::ios::failbit | std::ios::badbit);
      file.write(reinterpret_cast<const char*>(seed.bytes.data()),
                 static_cast<std::streamsize>(seed.bytes.size()));
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s DIRECTORY\n", argv[0]);
    return 2;
  }
  try {
    write_seeds(argv[1]);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
