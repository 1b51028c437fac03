#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <future>

#include "vdnn/cpu_device.h"
#include "vdnn/dataset.h"
#include "vdnn/error.h"
#include "vdnn/sim_device.h"

namespace vdnn {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Ge;
using ::testing::HasSubstr;

constexpr std::size_t kElements = 6;

// Sample i has the values i, i + 1/8, i + 2/8, ..., and the class i % 5.
class Numbers : public Dataset {
 public:
  explicit Numbers(std::uint64_t size) : size_(size) {}
  std::uint64_t size() const override { return size_; }
  const Dims& sample_dims() const override { return dims_; }
  const Dims& target_dims() const override { return target_dims_; }
  std::int64_t classes() const override { return 5; }
  void read(const SampleKey& key, std::span<float> image, std::span<std::int32_t> targets) const override {
    for (std::size_t i = 0; i < image.size(); ++i) {
      image[i] = static_cast<float>(key.index) + static_cast<float>(i) / 8;
    }
    targets[0] = static_cast<std::int32_t>(key.index % 5);
    ++reads_;
  }
  std::uint64_t reads() const { return reads_; }

 private:
  Dims dims_{1, 2, 3};
  Dims target_dims_;
  std::uint64_t size_;
  mutable std::atomic<std::uint64_t> reads_{0};
};

class FailsAt : public Numbers {
 public:
  FailsAt(std::uint64_t size, std::uint64_t bad) : Numbers(size), bad_(bad) {}
  void read(const SampleKey& key, std::span<float> image, std::span<std::int32_t> targets) const override {
    if (key.index == bad_) {
      throw DataError("sample " + std::to_string(key.index) + " is damaged");
    }
    Numbers::read(key, image, targets);
  }

 private:
  std::uint64_t bad_;
};

// Every value of the image is the epoch. The label map has the index and the epoch.
class Epochs : public Numbers {
 public:
  using Numbers::Numbers;
  const Dims& target_dims() const override { return map_; }
  std::int64_t classes() const override { return static_cast<std::int64_t>(size()); }
  void read(const SampleKey& key, std::span<float> image, std::span<std::int32_t> targets) const override {
    std::ranges::fill(image, static_cast<float>(key.epoch));
    targets[0] = static_cast<std::int32_t>(key.index);
    targets[1] = static_cast<std::int32_t>(key.epoch);
  }

 private:
  Dims map_{2, 1};
};

std::span<const float> images(const StagedBatch& batch) {
  return {pointer_to<const float>(batch.images.begin), batch.images.bytes / sizeof(float)};
}

std::span<const std::int32_t> targets(const StagedBatch& batch) {
  return {pointer_to<const std::int32_t>(batch.targets.begin), batch.targets.bytes / sizeof(std::int32_t)};
}

void expect_batch(const StagedBatch& batch, const BatchOrder& order) {
  const auto indices = order.indices(batch.number);
  EXPECT_EQ(batch.samples, indices.size());
  ASSERT_EQ(images(batch).size(), static_cast<std::size_t>(order.batch) * kElements);
  ASSERT_EQ(targets(batch).size(), static_cast<std::size_t>(order.batch));
  for (std::size_t i = 0; i < indices.size(); ++i) {
    EXPECT_EQ(targets(batch)[i], static_cast<std::int32_t>(indices[i] % 5)) << "place " << i;
    for (std::size_t j = 0; j < kElements; ++j) {
      EXPECT_EQ(images(batch)[i * kElements + j], static_cast<float>(indices[i]) + static_cast<float>(j) / 8);
    }
  }
  EXPECT_THAT(images(batch).subspan(indices.size() * kElements), Each(0.0F));
  EXPECT_THAT(targets(batch).subspan(indices.size()), Each(-1));
}

class BatchLoaderTest : public ::testing::Test {
 protected:
  static constexpr std::uint64_t kSlotBytes = 4 * (kElements * sizeof(float) + sizeof(std::int32_t));
  static constexpr BatchOrder kOrder{.samples = 10, .batch = 4, .shuffle = true, .seed = 9};

  std::unique_ptr<Device> device_ = make_cpu_device({.budget_bytes = 1 << 20, .host_budget_bytes = 1 << 20});
  PinnedPool pool_{*device_};
  StreamId stream_ = device_->create_stream("reader");
  Numbers data_{10};
};

TEST_F(BatchLoaderTest, GivesEveryBatchOfSeveralEpochsInOrder) {
  BatchLoader loader(*device_, pool_, data_, kOrder, 0, 9);
  for (std::uint64_t number = 0; number < 9; ++number) {
    const StagedBatch batch = loader.next();
    EXPECT_EQ(batch.number, number);
    EXPECT_EQ(batch.samples, 4U);
    expect_batch(batch, kOrder);
    loader.recycle(batch, {});
  }
  EXPECT_THROW(loader.next(), InvalidArgument);
}

// Regression: an epoch's last batch had zeros with target -1. No loss counts these, but batch normalisation
// does.
TEST_F(BatchLoaderTest, ABatchOfTrainingHoldsNothingButSamples) {
  for (const std::uint64_t samples : {1U, 3U, 5U, 10U}) {
    const Numbers data(samples);
    const BatchOrder order{.samples = samples, .batch = 4, .shuffle = true, .seed = 9};
    BatchLoader loader(*device_, pool_, data, order, 0, 2 * order.batches_per_epoch());
    for (std::uint64_t number = 0; number < 2 * order.batches_per_epoch(); ++number) {
      const StagedBatch batch = loader.next();
      EXPECT_EQ(batch.samples, 4U);
      EXPECT_THAT(targets(batch), Each(Ge(0)));
      for (std::size_t place = 0; place < 4; ++place) {
        EXPECT_GT(images(batch)[(place + 1) * kElements - 1], 0) << samples << " samples, batch " << number;
      }
      loader.recycle(batch, {});
    }
  }
}

// Evaluation of ten samples in batches of four: an epoch's third batch has two empty places.
TEST_F(BatchLoaderTest, LabelMapsAreWholeAndEverySampleKnowsItsEpoch) {
  const Epochs data(10);
  const BatchOrder in_order{.samples = 10, .batch = 4, .shuffle = false, .seed = 0};
  BatchLoader loader(*device_, pool_, data, in_order, 4, 3);
  for (const std::int32_t epoch : {1, 1, 2}) {
    const StagedBatch batch = loader.next();
    EXPECT_EQ(batch.samples, batch.number == 5 ? 2U : 4U);
    const auto first = static_cast<std::int32_t>(batch.number % 3 * 4);
    if (batch.number == 5) {
      EXPECT_THAT(targets(batch), ElementsAre(first, epoch, first + 1, epoch, -1, -1, -1, -1));
      EXPECT_THAT(images(batch).subspan(2 * kElements), Each(0.0F));
    } else {
      EXPECT_THAT(targets(batch),
                  ElementsAre(first, epoch, first + 1, epoch, first + 2, epoch, first + 3, epoch));
    }
    EXPECT_THAT(images(batch).first(2 * kElements), Each(static_cast<float>(epoch)));
    loader.recycle(batch, {});
  }
}

// Regression: an invalid class reached the loss, which did not know the sample.
TEST_F(BatchLoaderTest, NamesTheSampleWhoseClassIsInvalid) {
  class Mislabelled : public Numbers {
   public:
    using Numbers::Numbers;
    void read(const SampleKey& key, std::span<float> image, std::span<std::int32_t> targets) const override {
      Numbers::read(key, image, targets);
      targets[0] = key.index == 6 ? 5 : -1;
    }
  };
  const Mislabelled data(10);
  const BatchOrder in_order{.samples = 10, .batch = 4, .shuffle = false, .seed = 0};
  {
    BatchLoader loader(*device_, pool_, data, in_order, 0, 3);
    EXPECT_THAT(targets(loader.next()), Each(-1));
    EXPECT_THAT([&] { loader.next(); },
                ::testing::ThrowsMessage<DataError>(::testing::AllOf(
                    HasSubstr("sample 6 of the data set"), HasSubstr("class 5"), HasSubstr("0 to 4"))));
  }
  BatchLoader after(*device_, pool_, data, in_order, 2, 1);
  EXPECT_EQ(after.next().samples, 2U);
}

TEST_F(BatchLoaderTest, StartsAnywhere) {
  BatchLoader loader(*device_, pool_, data_, kOrder, 5, 2);
  for (const std::uint64_t number : {5U, 6U}) {
    const StagedBatch batch = loader.next();
    EXPECT_EQ(batch.number, number);
    expect_batch(batch, kOrder);
  }
  EXPECT_THROW(loader.next(), InvalidArgument);
}

TEST_F(BatchLoaderTest, OneSlotIsEnough) {
  BatchLoader loader(*device_, pool_, data_, kOrder, 0, 7, 1);
  for (std::uint64_t number = 0; number < 7; ++number) {
    const StagedBatch batch = loader.next();
    expect_batch(batch, kOrder);
    loader.recycle(batch, {});
  }
}

TEST_F(BatchLoaderTest, BatchesMayComeBackInAnyOrder) {
  BatchLoader loader(*device_, pool_, data_, kOrder, 0, 8, 3);
  const StagedBatch first = loader.next();
  const StagedBatch second = loader.next();
  loader.recycle(second, {});
  const StagedBatch third = loader.next();
  expect_batch(first, kOrder);
  expect_batch(third, kOrder);
  loader.recycle(first, {});
  expect_batch(loader.next(), kOrder);
  expect_batch(loader.next(), kOrder);
}

// The loader rewrites a batch only after the frontier with which it was recycled. Readers that the device
// delays at random still find their own batch.
TEST_F(BatchLoaderTest, WaitsForTheFrontierBeforeItWritesASlotAgain) {
  constexpr std::uint64_t kBatches = 60;
  const auto slow = make_cpu_device({.budget_bytes = 1 << 20, .host_budget_bytes = 1 << 20, .delay_seed = 3});
  const StreamId reader = slow->create_stream("reader");
  PinnedPool pool(*slow);
  std::vector<std::vector<float>> seen(kBatches);
  BatchLoader loader(*slow, pool, data_, kOrder, 0, kBatches, 2);
  for (std::uint64_t number = 0; number < kBatches; ++number) {
    const StagedBatch batch = loader.next();
    const auto read = [&seen, batch](void*) {
      seen[batch.number].assign(images(batch).begin(), images(batch).end());
    };
    const Point point =
        slow->submit(reader, {.name = "read", .reads = {}, .writes = {}, .cost = {}, .run = read});
    loader.recycle(batch, Frontier(point));
  }
  slow->synchronize_all();
  for (std::uint64_t number = 0; number < kBatches; ++number) {
    const std::uint64_t first = kOrder.indices(number).front();
    EXPECT_EQ(seen[number].front(), static_cast<float>(first)) << "batch " << number;
  }
}

TEST_F(BatchLoaderTest, TakesItsMemoryOnceAndGivesItBack) {
  {
    BatchLoader loader(*device_, pool_, data_, kOrder, 0, 30, 3);
    EXPECT_EQ(pool_.statistics().in_use_bytes, 3 * kSlotBytes);
    for (int i = 0; i < 30; ++i) {
      loader.recycle(loader.next(), {});
    }
    EXPECT_EQ(pool_.statistics().allocations, 3U);
  }
  EXPECT_EQ(pool_.statistics().in_use_bytes, 0U);
}

TEST_F(BatchLoaderTest, RefusedMemoryIsReportedAndNothingIsKept) {
  PinnedPool small(*device_, 2 * kSlotBytes + 1);
  try {
    const BatchLoader loader(*device_, small, data_, kOrder, 0, 9, 3);
    FAIL() << "nothing was thrown";
  } catch (const OutOfMemory& error) {
    EXPECT_EQ(error.shortage().asked, kSlotBytes);
    EXPECT_EQ(error.shortage().in_use, 2 * kSlotBytes);
    EXPECT_THAT(error.what(), HasSubstr("batch 3 of 3"));
  }
  EXPECT_EQ(small.statistics().in_use_bytes, 0U);
}

TEST_F(BatchLoaderTest, StopsWhenNobodyAsks) {
  const BatchLoader loader(*device_, pool_, data_, kOrder, 0, 1'000'000);
}

TEST_F(BatchLoaderTest, StopsWhenNobodyRecycles) {
  BatchLoader loader(*device_, pool_, data_, kOrder, 0, 1'000'000, 2);
  loader.next();
  loader.next();
}

// The last batch may still be on its way to the device when training ends. The pool must reuse the batch's
// memory only after everything submitted until then.
TEST_F(BatchLoaderTest, MemoryNeverRecycledIsReusedOnlyAfterWhatWasSubmitted) {
  std::promise<void> go;
  std::atomic<bool> done = false;
  {
    BatchLoader loader(*device_, pool_, data_, kOrder, 0, 1, 1);
    loader.next();
    device_->submit(stream_, {.name = "read", .reads = {}, .writes = {}, .cost = {}, .run = [&](void*) {
                                go.get_future().wait();
                                done = true;
                              }});
  }
  std::future<bool> reused = std::async(std::launch::async, [&] {
    const auto block = pool_.allocate_for_host(kSlotBytes);
    const bool was_done = done;
    pool_.free(block.value(), {});
    return was_done;
  });
  go.set_value();
  EXPECT_TRUE(reused.get());
}

TEST_F(BatchLoaderTest, AFailureToReadSurfacesAfterTheBatchesBeforeIt) {
  const BatchOrder in_order{.samples = 10, .batch = 4, .shuffle = false, .seed = 0};
  const FailsAt damaged(10, 6);
  BatchLoader loader(*device_, pool_, damaged, in_order, 0, 3);
  const StagedBatch first = loader.next();
  expect_batch(first, in_order);
  for (int i = 0; i < 2; ++i) {
    try {
      loader.next();
      FAIL() << "nothing was thrown";
    } catch (const DataError& error) {
      EXPECT_THAT(error.what(), HasSubstr("sample 6 is damaged"));
    }
  }
  loader.recycle(first, {});
}

TEST_F(BatchLoaderTest, AFailureOfTheReaderSurfaces) {
  BatchLoader loader(*device_, pool_, data_, kOrder, 0, 9, 1);
  const StagedBatch batch = loader.next();
  const Point read =
      device_->submit(stream_, {.name = "read", .reads = {}, .writes = {}, .cost = {}, .run = [](void*) {
                                  throw DeviceError("the copy failed");
                                }});
  loader.recycle(batch, Frontier(read));
  try {
    loader.next();
    FAIL() << "nothing was thrown";
  } catch (const DeviceError& error) {
    EXPECT_THAT(error.what(), HasSubstr("the copy failed"));
  }
}

TEST_F(BatchLoaderTest, AFrontierThatWasNeverSubmittedIsRefused) {
  BatchLoader loader(*device_, pool_, data_, kOrder, 0, 9, 1);
  const StagedBatch batch = loader.next();
  EXPECT_THROW(loader.recycle(batch, Frontier(Point{.stream = stream_, .count = 17})), InvalidArgument);
  EXPECT_THROW(loader.recycle(batch, Frontier(Point{.stream = 99, .count = 1})), InvalidArgument);
  loader.recycle(batch, {});
}

// If the caller holds every slot, a next() that waited would wait forever.
TEST_F(BatchLoaderTest, AskingWithEverySlotOutIsAnErrorNotAHang) {
  BatchLoader loader(*device_, pool_, data_, kOrder, 0, 9, 2);
  const StagedBatch first = loader.next();
  loader.next();
  EXPECT_THROW(loader.next(), InvalidArgument);
  loader.recycle(first, {});
  expect_batch(loader.next(), kOrder);
}

TEST_F(BatchLoaderTest, RecyclingTwiceOrAStrangerIsAnError) {
  BatchLoader loader(*device_, pool_, data_, kOrder, 0, 9, 1);
  const StagedBatch batch = loader.next();
  loader.recycle(batch, {});
  EXPECT_THROW(loader.recycle(batch, {}), InvalidArgument);
  EXPECT_THROW(loader.recycle({.number = 1, .slot = 7}, {}), InvalidArgument);
  const StagedBatch second = loader.next();
  // The slot is the same, but the batch is older.
  EXPECT_THROW(loader.recycle(batch, {}), InvalidArgument);
  loader.recycle(second, {});
}

TEST_F(BatchLoaderTest, RefusesWhatCannotBe) {
  const auto make = [this](const BatchOrder& order, std::uint64_t first, std::uint64_t count,
                           std::uint32_t slots) {
    BatchLoader(*device_, pool_, data_, order, first, count, slots);
  };
  EXPECT_THROW(make(kOrder, 0, 1, 0), InvalidArgument);
  EXPECT_THROW(make({.samples = 11, .batch = 4}, 0, 1, 3), InvalidArgument);
  EXPECT_THROW(make({.samples = 10, .batch = 0}, 0, 1, 3), InvalidArgument);
  EXPECT_THROW(make(kOrder, ~std::uint64_t{0}, 2, 3), InvalidArgument);
  EXPECT_THROW(make({.samples = 10, .batch = std::int64_t{1} << 62}, 0, 1, 3), InvalidArgument);
  EXPECT_EQ(pool_.statistics().in_use_bytes, 0U);
}

TEST_F(BatchLoaderTest, ZeroBatchesAreAllowed) {
  BatchLoader loader(*device_, pool_, data_, kOrder, 3, 0);
  EXPECT_THROW(loader.next(), InvalidArgument);
}

// On `sim`, addresses are offsets, so the loader must not write to them.
TEST(BatchLoaderOnSim, NumbersBatchesAndTouchesNothing) {
  const auto device = make_sim_device({.profile = sim_profile("titan-x")});
  PinnedPool pool(*device);
  const Numbers data(10);
  const BatchOrder order{.samples = 10, .batch = 4};
  BatchLoader loader(*device, pool, data, order, 0, 6, 2);
  std::vector<std::uint32_t> samples;
  for (std::uint64_t number = 0; number < 6; ++number) {
    const StagedBatch batch = loader.next();
    EXPECT_EQ(batch.number, number);
    EXPECT_EQ(batch.images.bytes, 4 * kElements * sizeof(float));
    EXPECT_EQ(batch.targets, (AddressRange{.begin = batch.images.end(), .bytes = 4 * sizeof(std::int32_t)}));
    samples.push_back(batch.samples);
    loader.recycle(batch, {});
  }
  EXPECT_THAT(samples, ElementsAre(4, 4, 2, 4, 4, 2));
  EXPECT_EQ(data.reads(), 0U);
}

}  // namespace
}  // namespace vdnn
