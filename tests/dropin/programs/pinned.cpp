// Allocates and frees page-locked buffers of several kinds repeatedly, for copies in both directions.

#include <array>

#include "program.h"

namespace {

std::uint64_t body() {
  program::Checksum sum;
  const program::Stream upload;
  const program::Stream download;
  const program::Event uploaded;
  constexpr std::array<unsigned, 3> kFlags{0, cudaHostAllocPortable, cudaHostAllocWriteCombined};
  for (int round = 0; round < 40; ++round) {
    const std::size_t bytes = 50'000 + 10'000 * static_cast<std::size_t>(round % 5);
    const program::PinnedBuffer in(bytes, kFlags[static_cast<std::size_t>(round) % kFlags.size()]);
    const program::PinnedBuffer out(bytes, 0);
    unsigned flags = 0;
    CHECK(cudaHostGetFlags(&flags, in.data));
    sum.add(&flags, sizeof flags);
    const program::Buffer device(bytes);
    const std::vector<unsigned char> content = program::pattern(bytes, static_cast<std::uint64_t>(round));
    std::memcpy(in.data, content.data(), bytes);
    CHECK(cudaMemcpyAsync(device.data, in.data, bytes, cudaMemcpyHostToDevice, upload.handle));
    CHECK(cudaEventRecord(uploaded.handle, upload.handle));
    CHECK(cudaStreamWaitEvent(download.handle, uploaded.handle, 0));
    CHECK(cudaMemcpyAsync(out.data, device.data, bytes, cudaMemcpyDeviceToHost, download.handle));
    CHECK(cudaStreamSynchronize(download.handle));
    sum.add(out.data, bytes);
  }
  return sum.value();
}

}  // namespace

int main() {
  return program::run(body);
}
