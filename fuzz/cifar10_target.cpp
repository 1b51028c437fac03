// CIFAR-10 (src/data/cifar10.cpp). The input is one file of records, which is used for all six files of the
// data set.

#include <array>

#include "fuzz/samples.h"
#include "fuzz/scratch.h"
#include "fuzz/target.h"

namespace vdnn::fuzz {

namespace {

constexpr std::size_t kRecordBytes = 3073;
constexpr std::array<const char*, 6> kFiles{"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin",
                                            "data_batch_4.bin", "data_batch_5.bin", "test_batch.bin"};

}  // namespace

bool run_cifar10(Input input) {
  for (const char* file : kFiles) {
    scratch().write(file, input);
  }
  const auto splits = attempt<DataError>([] {
    return open_dataset(
        {.text = "cifar10:" + scratch().directory().string(), .sample_dims = {3, 32, 32}, .classes = 10});
  });
  if (!splits) {
    return false;
  }
  require(input.size() % kRecordBytes == 0, "records are whole");
  const std::uint64_t records = input.size() / kRecordBytes;
  require(splits->training->size() == 5 * records && splits->test->size() == records,
          "there is one sample per record");
  for (std::uint64_t index = 0; index < records; ++index) {
    const Sample sample = read_sample(*splits->test, index);
    require(sample.target == input[index * kRecordBytes], "labels are equal to those of the file");
    for (std::uint64_t file = 0; file < 5; ++file) {
      require(read_sample(*splits->training, file * records + index) == sample,
              "equal records are equal samples");
    }
  }
  return true;
}

std::vector<Seed> cifar10_seeds() {
  Bytes records(2 * kRecordBytes, 200);
  records[0] = 0;
  records[kRecordBytes] = 9;
  return {{"one", {records.begin(), records.begin() + kRecordBytes}}, {"two", records}};
}

}  // namespace vdnn::fuzz
