// The behaviour of the base class, independent of the driver.

#include "vdnn/device.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/fakes/fake_device.h"
#include "vdnn/error.h"

namespace vdnn {
namespace {

using Event = FakeDevice::Event;

Point submit(FakeDevice& device, StreamId stream) {
  return device.submit(stream, {.name = "work", .reads = {}, .writes = {}, .cost = {}, .run = {}});
}

TEST(DeviceBase, OnlyWhatAWaitLacksReachesTheDriver) {
  FakeDevice device;
  const StreamId a = device.create_stream("a");
  const StreamId b = device.create_stream("b");
  const StreamId c = device.create_stream("c");
  const Point a1 = submit(device, a);
  const Point b1 = submit(device, b);
  device.take_events();

  Frontier both(a1);
  both.join(b1);
  device.wait(b, both);  // b already knows its own point
  device.wait(c, both);
  device.wait(c, both);  // c knows both points by now
  device.wait(c, {});
  const std::vector<Event> expected{{.kind = Event::Kind::kWait, .stream = b, .point = a1, .range = {}},
                                    {.kind = Event::Kind::kWait, .stream = c, .point = a1, .range = {}},
                                    {.kind = Event::Kind::kWait, .stream = c, .point = b1, .range = {}}};
  EXPECT_EQ(device.take_events(), expected);
}

// If one waited point already comes after another, only the later one needs a wait of the driver. Regression:
// redundant waits reached the driver, too. They were a third of all waits of a step that offloads.
TEST(DeviceBase, RedundantPointsOfAWaitDoNotReachTheDriver) {
  FakeDevice device;
  const StreamId a = device.create_stream("a");
  const StreamId b = device.create_stream("b");
  const StreamId c = device.create_stream("c");
  const StreamId d = device.create_stream("d");
  submit(device, a);
  device.wait(b, device.frontier(a));
  const Point b1 = submit(device, b);
  device.wait(c, device.frontier(b));
  const Point c1 = submit(device, c);
  const Point a2 = submit(device, a);  // no other point comes after it
  Frontier all(b1);
  all.join(c1);
  all.join(a2);
  device.take_events();

  device.wait(d, device.frontier(c));
  device.wait(d, all);
  const std::vector<Event> expected{{.kind = Event::Kind::kWait, .stream = d, .point = c1, .range = {}},
                                    {.kind = Event::Kind::kWait, .stream = d, .point = a2, .range = {}}};
  EXPECT_EQ(device.take_events(), expected);
  EXPECT_TRUE(device.frontier(d).dominates(all));
}

// A submission does not come after a wait that its stream makes later.
TEST(DeviceBase, APointDoesNotImplyLaterWaitsOfItsStream) {
  FakeDevice device;
  const StreamId a = device.create_stream("a");
  const StreamId b = device.create_stream("b");
  const StreamId c = device.create_stream("c");
  const Point a1 = submit(device, a);
  const Point b1 = submit(device, b);
  device.wait(b, Frontier(a1));
  device.take_events();

  device.wait(c, device.frontier(b));
  const std::vector<Event> expected{{.kind = Event::Kind::kWait, .stream = c, .point = a1, .range = {}},
                                    {.kind = Event::Kind::kWait, .stream = c, .point = b1, .range = {}}};
  EXPECT_EQ(device.take_events(), expected);
}

TEST(DeviceBase, ACommitThatTheDriverRefusesCountsNothing) {
  FakeDevice device;
  const AddressRange range = device.reserve(4096);
  device.on_commit = [](AddressRange) { throw DeviceError("refused"); };
  EXPECT_THROW(device.commit(range), DeviceError);
  EXPECT_EQ(device.counters().commits, 0U);
  EXPECT_EQ(device.counters().committed_bytes, 0U);
  EXPECT_EQ(device.counters().peak_committed_bytes, 0U);
}

TEST(DeviceBase, PageLockingThatTheDriverRefusesCountsNothing) {
  FakeDevice device;
  device.on_allocate_pinned = [](std::uint64_t) { throw DeviceError("refused"); };
  EXPECT_THROW(device.allocate_pinned(10), DeviceError);
  EXPECT_EQ(device.counters().pinned_allocations, 0U);
  EXPECT_EQ(device.counters().pinned_bytes, 0U);
  EXPECT_EQ(device.counters().peak_pinned_bytes, 0U);
}

class DeviceWithoutStreams : public FakeDevice {
 protected:
  void do_create_stream(StreamId, const std::string& name) override {
    throw DeviceError("no thread for stream '" + name + "'");
  }
};

// Regression: the refused stream stayed in the base class, and a submission to it reached a driver without
// that stream.
TEST(DeviceBase, AStreamThatTheDriverRefusesIsNotThere) {
  DeviceWithoutStreams device;
  EXPECT_THROW(device.create_stream("a"), DeviceError);
  EXPECT_EQ(device.stream_count(), 0U);
  EXPECT_THROW(submit(device, 0), InvalidArgument);
}

TEST(DeviceBase, ProtectionThatIsNotSupportedIsRefusedWithTheReason) {
  FakeDevice device;
  const StreamId a = device.create_stream("a");
  device.no_protection = "this fake has none";
  try {
    device.protect(a, {.begin = 0, .bytes = 4096}, Protection::kInaccessible);
    FAIL() << "accepted";
  } catch (const InvalidArgument& error) {
    EXPECT_NE(std::string(error.what()).find("this fake has none"), std::string::npos) << error.what();
  }
  EXPECT_TRUE(device.frontier(a).empty()) << "refused work is not a submission";
}

}  // namespace
}  // namespace vdnn
