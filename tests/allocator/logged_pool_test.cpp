#include "vdnn/logged_pool.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <sstream>
#include <string>

#include "vdnn/cpu_device.h"
#include "vdnn/error.h"

namespace vdnn::logged_pool_test {
namespace {

constexpr std::uint64_t kBudget = 8 << 20;

class LoggedPoolTest : public ::testing::Test {
 protected:
  void SetUp() override {
    device_->create_stream("one");
    device_->create_stream("other");
  }

  std::uint64_t allocate(std::uint64_t bytes, StreamHandle stream, BlockLife life = BlockLife::kTransient) {
    return logged_.allocate(bytes, stream, life).value().begin;
  }
  std::string text() const {
    std::ostringstream out;
    write_allocation_log(out, logged_.log());
    return out.str();
  }

  std::unique_ptr<Device> device_ = make_cpu_device({.budget_bytes = kBudget});
  std::unique_ptr<PoolBackend> backend_ = make_pool_backend(*device_);
  StreamPool pool_{*backend_, {}};
  LoggedPool logged_{pool_};
  StreamHandle one_ = stream_handle(0);
  StreamHandle other_ = stream_handle(1);
};

TEST_F(LoggedPoolTest, LogIsWhatWasAsked) {
  const std::uint64_t lasting = allocate(1000, other_, BlockLife::kPersistent);
  logged_.begin_step();
  const std::uint64_t block = allocate(0, one_);
  logged_.used_on(block, other_);
  const std::uint64_t second = allocate(70000, one_);
  logged_.free(block);
  logged_.free(second, other_);
  EXPECT_EQ(text(), "vdnn-allocation-log 1\np 1000 0\nstep\na 1 1\nu 1 0\na 70000 1\nf 1 1\nf 2 0\n");
  EXPECT_EQ(read_allocation_log(text()), logged_.log());
  EXPECT_EQ(pool_.find(lasting)->bytes, 1000U);
  EXPECT_EQ(pool_.statistics().all.blocks.current, 1U);
}

TEST_F(LoggedPoolTest, WhatIsRefusedIsNotInIt) {
  EXPECT_FALSE(logged_.allocate(kBudget + 1, one_));
  EXPECT_THROW(logged_.allocate(1, stream_handle(7)), InvalidArgument);
  const std::uint64_t block = allocate(5, one_);
  EXPECT_THROW(logged_.free(block + 1), InvalidArgument);
  EXPECT_THROW(logged_.free(block, stream_handle(7)), InvalidArgument);
  EXPECT_THROW(logged_.used_on(block, stream_handle(7)), InvalidArgument);
  logged_.free(block);
  EXPECT_THROW(logged_.free(block), InvalidArgument);
  EXPECT_EQ(text(), "vdnn-allocation-log 1\na 5 0\nf 0 0\n");
}

// The callback for an exhausted pool may free through the log, too.
TEST_F(LoggedPoolTest, BlocksMayBeFreedWhenThePoolIsExhausted) {
  std::uint64_t first = 0;
  LoggedPool* logged = nullptr;
  StreamPool pool(*backend_, {.on_exhausted = [&](std::uint64_t) {
    logged->free(first);
    return true;
  }});
  LoggedPool around(pool);
  logged = &around;
  first = around.allocate(5 << 20, one_).value().begin;
  EXPECT_TRUE(around.allocate(6 << 20, one_));
  std::ostringstream out;
  write_allocation_log(out, around.log());
  EXPECT_EQ(out.str(), "vdnn-allocation-log 1\na 5242880 0\nf 0 0\na 6291456 0\n");
}

// A block that was allocated from the pool directly may be freed through the log.
TEST_F(LoggedPoolTest, BlocksOfOthersAreNotInIt) {
  const std::uint64_t block = pool_.allocate(100, one_).value().begin;
  logged_.used_on(block, other_);
  logged_.free(block);
  EXPECT_EQ(logged_.log(), AllocationLog{});
  EXPECT_EQ(pool_.statistics().all.blocks.current, 0U);
}

}  // namespace
}  // namespace vdnn::logged_pool_test
