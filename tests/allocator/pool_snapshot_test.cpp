#include "vdnn/pool_snapshot.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "tests/report/json_schema.h"
#include "vdnn/cpu_device.h"

namespace vdnn::pool_snapshot_test {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::Json;

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

// Blocks of every kind, in every state.
class PoolSnapshot : public ::testing::Test {
 protected:
  void SetUp() override {
    device_->create_stream("one");
    allocate(1000);
    pool_.free(allocate(5000));
    pool_.free(allocate(3 * kMiB));
    allocate(2 * kMiB + 1);
    allocate(70000, BlockLife::kPersistent);
    ready_ = pool_.allocate_ready(300).value().begin;
  }

  std::uint64_t allocate(std::uint64_t bytes, BlockLife life = BlockLife::kTransient) {
    return pool_.allocate(bytes, stream_handle(0), life).value().begin;
  }

  Json snapshot() const { return Json::parse(pool_snapshot_json(pool_)); }
  static std::vector<std::string> errors(const Json& snapshot) {
    return testing::SchemaCheck::errors(testing::read_json(VDNN_DOCS_DIRECTORY "/pool_snapshot.schema.json"),
                                        snapshot);
  }

  std::unique_ptr<Device> device_ = make_cpu_device({.budget_bytes = 64 * kMiB});
  std::unique_ptr<PoolBackend> backend_ = make_pool_backend(*device_);
  StreamPool pool_{*backend_, {.name = "a \"pool\"", .history_events = 4, .stack_traces = true}};
  std::uint64_t ready_ = 0;
};

TEST_F(PoolSnapshot, KeepsToItsSchema) {
  EXPECT_THAT(errors(snapshot()), IsEmpty());
}

TEST_F(PoolSnapshot, SchemaRequiresEveryKeyAndAdmitsNoOther) {
  const Json whole = snapshot();
  for (const auto& [key, value] : whole.items()) {
    Json without = whole;
    without.erase(key);
    EXPECT_THAT(errors(without), Contains(HasSubstr("'" + key + "' is missing")));
  }
  Json wrong = whole;
  wrong["statistics"]["all"]["blocks"]["mean"] = 1;
  EXPECT_THAT(errors(wrong), Contains(HasSubstr("/statistics/all/blocks/mean")));
  wrong = whole;
  wrong["pieces"][0]["state"] = "lost";
  EXPECT_THAT(errors(wrong), Contains(HasSubstr("/pieces/0/state")));
  wrong = whole;
  wrong["schema"] = 2;
  EXPECT_THAT(errors(wrong), Contains(HasSubstr("/schema")));
}

TEST_F(PoolSnapshot, HasTheLatestEvents) {
  const Json json = snapshot();
  EXPECT_EQ(json["name"], "a \"pool\"");
  ASSERT_EQ(json["history"].size(), 4U);
  EXPECT_EQ(json["history"][0]["event"], "freed");
  EXPECT_EQ(json["history"][0]["bytes"], 3 * kMiB);
  EXPECT_EQ(json["history"][3]["event"], "allocated");
  EXPECT_EQ(json["history"][3]["begin"], ready_);
  EXPECT_GT(json["history"][3]["frames"].size(), 2U);
}

TEST_F(PoolSnapshot, PiecesAddUpToTheFigures) {
  const Json json = snapshot();
  std::map<std::string, std::uint64_t> bytes;
  std::uint64_t requested = 0;
  for (const Json& piece : json["pieces"]) {
    bytes[piece["state"]] += piece["bytes"].get<std::uint64_t>();
    requested += piece.value("requested_bytes", std::uint64_t{0});
    EXPECT_EQ(piece.contains("stream"), piece["state"] == "in use" || piece["state"] == "cached");
    EXPECT_EQ(piece.contains("requested_bytes"), piece["state"] == "in use");
    if (piece["begin"] == ready_) {
      EXPECT_EQ(piece["stream"], 0);
    }
  }
  const Json& all = json["statistics"]["all"];
  EXPECT_EQ(bytes["in use"], all["allocated_bytes"]["current"]);
  EXPECT_EQ(bytes["in use"] + bytes["cached"], all["active_bytes"]["current"]);
  EXPECT_EQ(bytes["in use"] + bytes["cached"] + bytes["free"], all["reserved_bytes"]["current"]);
  EXPECT_EQ(requested, 1000 + 2 * kMiB + 1 + 70000 + 300);
  EXPECT_GT(bytes["cached"], 0U);
  EXPECT_GT(bytes["vacant"], 0U);
}

// The keys that the visualiser looks up, which are those of torch.cuda.memory._snapshot().
TEST_F(PoolSnapshot, ForTorchHasItsKeys) {
  const Json json = Json::parse(torch_snapshot_json(pool_, 2));
  const auto keys = [](const Json& object) {
    std::set<std::string> names;
    for (const auto& [key, value] : object.items()) {
      names.insert(key);
    }
    return names;
  };
  EXPECT_EQ(keys(json), (std::set<std::string>{"segments", "device_traces", "allocator_settings"}));
  ASSERT_EQ(json["device_traces"].size(), 3U);
  EXPECT_EQ(json["device_traces"][0], Json::array());
  std::vector<std::string> actions;
  for (const Json& event : json["device_traces"][2]) {
    EXPECT_EQ(keys(event), (std::set<std::string>{"action", "addr", "size", "stream", "time_us", "frames"}));
    EXPECT_GT(event["frames"].size(), 2U);
    for (const Json& frame : event["frames"]) {
      EXPECT_EQ(keys(frame), (std::set<std::string>{"name", "filename", "line"}));
    }
    actions.push_back(event["action"]);
  }
  EXPECT_EQ(actions,
            (std::vector<std::string>{"free_requested", "free_completed", "alloc", "alloc", "alloc"}));
  for (const Json& segment : json["segments"]) {
    EXPECT_EQ(keys(segment), (std::set<std::string>{"device", "address", "total_size", "allocated_size",
                                                    "active_size", "requested_size", "stream", "segment_type",
                                                    "segment_pool_id", "is_expandable", "frames", "blocks"}));
    EXPECT_EQ(segment["device"], 2);
    for (const Json& block : segment["blocks"]) {
      EXPECT_EQ(keys(block), (std::set<std::string>{"address", "size", "requested_size", "state", "frames"}));
    }
  }
}

// Segments neither overlap nor touch. The blocks of a segment fill it without gaps, and all segments together
// are the committed memory.
TEST_F(PoolSnapshot, ForTorchHasEveryCommittedByteOnce) {
  const Json json = Json::parse(torch_snapshot_json(pool_, 0));
  std::uint64_t total = 0;
  std::uint64_t in_use = 0;
  std::map<std::string, std::uint64_t> bytes;
  for (const Json& segment : json["segments"]) {
    std::uint64_t end = segment["address"];
    for (const Json& block : segment["blocks"]) {
      EXPECT_EQ(block["address"], end);
      end += block["size"].get<std::uint64_t>();
      bytes[block["state"]] += block["size"].get<std::uint64_t>();
    }
    EXPECT_EQ(end - segment["address"].get<std::uint64_t>(), segment["total_size"]);
    total += segment["total_size"].get<std::uint64_t>();
    in_use += segment["allocated_size"].get<std::uint64_t>();
  }
  EXPECT_EQ(total, pool_.statistics().all.reserved.current);
  EXPECT_EQ(in_use, pool_.statistics().all.allocated.current);
  EXPECT_EQ(bytes["active_allocated"], in_use);
  EXPECT_EQ(bytes["inactive"], total - in_use);
}

}  // namespace
}  // namespace vdnn::pool_snapshot_test
