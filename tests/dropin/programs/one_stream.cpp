// Allocates many buffers of changing sizes, one after the other, on the default stream.

#include "program.h"

namespace {

using program::Buffer;

std::uint64_t body() {
  std::mt19937_64 random(1);
  program::Checksum sum;
  std::vector<Buffer> live;
  for (int round = 0; round < 300; ++round) {
    if (live.size() == 16 || (!live.empty() && random() % 3 == 0)) {
      std::swap(live[random() % live.size()], live.back());
      std::vector<unsigned char> content(live.back().bytes);
      CHECK(cudaMemcpy(content.data(), live.back().data, content.size(), cudaMemcpyDeviceToHost));
      sum.add(content.data(), content.size());
      live.pop_back();
      continue;
    }
    const std::size_t bytes = 1 + random() % (random() % 4 == 0 ? 300'000 : 9'000);
    live.emplace_back(bytes);
    const std::vector<unsigned char> content = program::pattern(bytes, random());
    CHECK(cudaMemset(live.back().data, static_cast<int>(random() % 256), bytes));
    CHECK(cudaMemcpy(live.back().data, content.data(), bytes / 2, cudaMemcpyHostToDevice));
    if (live.size() > 1) {
      const Buffer& other = live[random() % (live.size() - 1)];
      CHECK(cudaMemcpyAsync(live.back().data, other.data, std::min(bytes, other.bytes) / 3,
                            cudaMemcpyDeviceToDevice, nullptr));
    }
  }
  for (const Buffer& buffer : live) {
    std::vector<unsigned char> content(buffer.bytes);
    CHECK(cudaMemcpy(content.data(), buffer.data, content.size(), cudaMemcpyDefault));
    sum.add(content.data(), content.size());
  }
  CHECK(cudaFree(nullptr));
  CHECK(cudaDeviceSynchronize());
  return sum.value();
}

}  // namespace

int main() {
  return program::run(body);
}
