// A pipeline over streams that come and go. Events order the streams that share stream-ordered memory, which
// is freed on the stream that allocated it or on the one that used it last.

#include <algorithm>
#include <array>
#include <memory>

#include "program.h"

namespace {

void wait_for(cudaStream_t earlier, cudaStream_t later) {
  const program::Event event;
  CHECK(cudaEventRecord(event.handle, earlier));
  CHECK(cudaStreamWaitEvent(later, event.handle, 0));
}

std::uint64_t body() {
  constexpr std::size_t kStreams = 4;
  std::mt19937_64 random(2);
  program::Checksum sum;
  const program::PinnedBuffer result(kStreams * 200'000, 0);
  for (int round = 0; round < 12; ++round) {
    std::array<std::unique_ptr<program::Stream>, kStreams> streams;
    for (auto& stream : streams) {
      stream = std::make_unique<program::Stream>();
    }
    std::fill_n(result.bytes_of(), result.bytes, std::uint8_t{0});
    for (int step = 0; step < 10; ++step) {
      const std::size_t producer = random() % kStreams;
      const std::size_t consumer = random() % kStreams;
      const cudaStream_t from = streams[producer]->handle;
      const cudaStream_t to = streams[consumer]->handle;
      const std::size_t bytes = 1'000 + random() % 199'000;
      program::Block made(bytes, from);
      CHECK(cudaMemsetAsync(made.data, static_cast<int>(random() % 256), bytes, from));
      const std::vector<unsigned char> content = program::pattern(bytes / 2, random());
      CHECK(cudaMemcpyAsync(made.data, content.data(), content.size(), cudaMemcpyHostToDevice, from));
      wait_for(from, to);
      made.stream = to;  // the stream of later uses
      const program::Block copied(bytes, to);
      CHECK(cudaMemcpyAsync(copied.data, made.data, bytes, cudaMemcpyDeviceToDevice, to));
      CHECK(cudaMemcpyAsync(result.bytes_of() + consumer * 200'000, copied.data, bytes,
                            cudaMemcpyDeviceToHost, to));
      if (random() % 2 != 0) {
        wait_for(to, from);
        made.stream = from;
      }
    }
    for (const auto& stream : streams) {
      CHECK(cudaStreamSynchronize(stream->handle));
    }
    sum.add(result.data, result.bytes);
  }
  return sum.value();
}

}  // namespace

int main() {
  return program::run(body);
}
