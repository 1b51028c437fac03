#include "vdnn/schedule_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <random>
#include <set>
#include <sstream>

#include "tests/plan/tapes.h"
#include "tests/report/json_schema.h"
#include "vdnn/checker.h"
#include "vdnn/error.h"

namespace vdnn::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr const char* kOrigin = R"({"model":"lenet","batch":2,"nested":{"z":1,"a":[1.5,null]}})";

std::string written(const Tape& tape, const Schedule& schedule) {
  std::ostringstream out;
  write_schedule(out, tape, schedule, kOrigin);
  return out.str();
}

Schedule read(const Tape& tape, const std::string& text) {
  std::istringstream in(text);
  return read_schedule(in, tape);
}

std::string origin_of(const std::string& text) {
  std::istringstream in(text);
  return read_schedule_origin(in);
}

std::vector<std::string> schema_errors(const Json& json) {
  return SchemaCheck::errors(read_json(std::string(VDNN_DOCS_DIRECTORY) + "/schedule.schema.json"), json);
}

// The message of the DataError that reading throws; empty if reading succeeds.
std::string refusal(const Tape& tape, const std::string& text) {
  try {
    read(tape, text);
  } catch (const DataError& error) {
    return error.what();
  }
  return {};
}

bool operator==(const Buffer& a, const Buffer& b) {
  return a.name == b.name && a.bytes == b.bytes && a.space == b.space && a.persistent == b.persistent &&
         a.offset == b.offset;
}

// --- correct files -------------------------------------------------------------------------------

TEST(ScheduleFile, ComesBackAsItWas) {
  for (const Subject& subject : all_subjects()) {
    const std::string text = written(*subject.tape, subject.schedule);
    const Schedule back = read(*subject.tape, text);
    EXPECT_EQ(back.algorithms, subject.schedule.algorithms) << subject.name;
    EXPECT_EQ(back.instructions, subject.schedule.instructions) << subject.name;
    EXPECT_EQ(back.arena_bytes, subject.schedule.arena_bytes) << subject.name;
    EXPECT_TRUE(std::ranges::equal(back.buffers, subject.schedule.buffers,
                                   [](const Buffer& a, const Buffer& b) { return a == b; }))
        << subject.name;
    EXPECT_EQ(written(*subject.tape, back), text) << subject.name;
    EXPECT_EQ(origin_of(text), kOrigin);
  }
}

TEST(ScheduleFile, ObeysItsSchema) {
  for (const Subject& subject : all_subjects()) {
    EXPECT_THAT(schema_errors(Json::parse(written(*subject.tape, subject.schedule))), IsEmpty())
        << subject.name;
  }
}

TEST(ScheduleFile, SizesBeyondFourGibibytes) {
  const TapePtr tape = tiny_tape();
  Schedule schedule = schedule_of(*tape, Policy::kOffloadAll);
  schedule.buffers[0].bytes = ~std::uint64_t{0};
  EXPECT_EQ(read(*tape, written(*tape, schedule)).buffers[0].bytes, ~std::uint64_t{0});
}

TEST(ScheduleFile, OriginsAreObjects) {
  const TapePtr tape = tiny_tape();
  const Schedule schedule = schedule_of(*tape, Policy::kOffloadNone);
  for (const char* origin : {"", "[]", "1", "{", "{} x"}) {
    std::ostringstream out;
    EXPECT_THROW(write_schedule(out, *tape, schedule, origin), InvalidArgument) << origin;
    EXPECT_EQ(out.str(), "");
  }
}

// --- another tape --------------------------------------------------------------------------------

TEST(ScheduleFile, AnotherTapeIsRefused) {
  const TapePtr lenet = model_tape("lenet");
  const std::string text = written(*lenet, schedule_of(*lenet, Policy::kOffloadAll));
  EXPECT_EQ(refusal(*model_tape("lenet"), text), "");
  EXPECT_THAT(refusal(*model_tape("fashion-vgg"), text), HasSubstr("another tape than 'fashion-vgg'"));
  EXPECT_THAT(refusal(*model_tape("lenet", {.pooling_reads_x_and_y = true}), text),
              HasSubstr("another tape"));
}

TapePtr variant(const std::function<void(std::vector<Overwrite>&, std::vector<Algorithm>&,
                                         std::vector<ValueId>&, std::uint64_t& bytes)>& change) {
  std::uint64_t bytes = 8;
  std::vector<Overwrite> overwrites{{0, 0}};
  std::vector<Algorithm> algorithms{{"a", 1}};
  std::vector<ValueId> reads{0, 1};
  change(overwrites, algorithms, reads, bytes);
  TapeDraft draft;
  draft.value("x", ValueKind::kInput, 8);
  draft.value("x2", ValueKind::kInput, 8);
  const ValueId metrics = draft.value("metrics", ValueKind::kMetrics, bytes);
  draft.op("op", draft.layer("layer"), Phase::kForward, reads, {metrics}, overwrites, algorithms);
  return draft.finish();
}

// Regression: the fingerprint left out the permission to overwrite, so that a schedule that overwrites ran on
// a tape that forbids it.
TEST(ScheduleFile, TheFingerprintCoversWhatASchedulesDependsOn) {
  const auto print = [](const auto& change) { return fingerprint(*variant(change)); };
  const std::string same = print([](auto&, auto&, auto&, auto&) {});
  EXPECT_EQ(same.size(), 16);
  EXPECT_EQ(same.find_first_not_of("0123456789abcdef"), std::string::npos);
  EXPECT_EQ(print([](auto&, auto&, auto&, auto&) {}), same);
  EXPECT_NE(print([](auto& overwrites, auto&, auto&, auto&) { overwrites.clear(); }), same);
  EXPECT_NE(print([](auto& overwrites, auto&, auto&, auto&) { overwrites[0].read = 1; }), same);
  EXPECT_NE(print([](auto&, auto& algorithms, auto&, auto&) { algorithms[0].workspace_bytes = 2; }), same);
  EXPECT_NE(print([](auto&, auto& algorithms, auto&, auto&) { algorithms[0].name = "b"; }), same);
  EXPECT_NE(print([](auto&, auto& algorithms, auto&, auto&) { algorithms.push_back({"b", 1}); }), same);
  EXPECT_NE(print([](auto&, auto&, auto& reads, auto&) { std::swap(reads[0], reads[1]); }), same);
  EXPECT_NE(print([](auto&, auto&, auto&, auto& bytes) { bytes = 16; }), same);
}

// Regression: a schedule was refused if the library, or its measured times, ordered the same algorithms
// differently.
TEST(ScheduleFile, TheOrderOfAlgorithmsIsNoMatter) {
  const auto tape = [](bool exchanged) {
    return variant([&](auto&, auto& algorithms, auto&, auto&) {
      algorithms.push_back({"b", 1});
      if (exchanged) {
        std::ranges::reverse(algorithms);
      }
    });
  };
  EXPECT_EQ(fingerprint(*tape(true)), fingerprint(*tape(false)));
}

// Older files have a fingerprint that depends on the order of algorithms.
TEST(ScheduleFile, AFingerprintOfAlgorithmsInTheirOrderIsReadToo) {
  const TapePtr tape = variant([](auto&, auto& algorithms, auto&, auto&) {
    algorithms.insert(algorithms.begin(), {"z", 1});
  });
  std::string text = written(*tape, schedule_of(*tape, Policy::kOffloadNone));
  const std::string now = fingerprint(*tape);
  const std::string then = "65f034afb30c74d1";
  ASSERT_NE(now, then);
  text.replace(text.find(now), now.size(), then);
  EXPECT_EQ(refusal(*tape, text), "");
}

// --- damage --------------------------------------------------------------------------------------

class DamagedScheduleFile : public ::testing::Test {
 protected:
  // The first instruction of that kind.
  Json& instruction(const std::string& kind) {
    for (Json& it : json_["instructions"]) {
      if (it["kind"] == kind) {
        return it;
      }
    }
    throw InvalidArgument("no " + kind);
  }
  std::string refusal_of(const Json& json) const { return refusal(*tape_, json.dump()); }

  const TapePtr tape_ = tiny_tape();
  const std::string text_ = written(*tape_, schedule_of(*tape_, Policy::kOffloadAll));
  Json json_ = Json::parse(text_);
};

TEST_F(DamagedScheduleFile, AnyTruncation) {
  // The last byte is the newline, which may be missing.
  const std::size_t complete = text_.size() - 1;
  for (std::size_t length = 0; length < complete; length += length + 50 < complete ? 17 : 1) {
    EXPECT_NE(refusal(*tape_, text_.substr(0, length)), "") << length;
    EXPECT_THROW(origin_of(text_.substr(0, length)), DataError) << length;
  }
}

TEST_F(DamagedScheduleFile, AnythingBehindTheEnd) {
  EXPECT_NE(refusal(*tape_, text_ + "x"), "");
  EXPECT_NE(refusal(*tape_, text_ + text_), "");
}

// Regression: the parser took a zero byte for the end of the file and ignored everything after it.
TEST_F(DamagedScheduleFile, AnythingBehindAZero) {
  const std::string zero(1, '\0');
  for (const std::string& text : {text_ + zero, text_ + zero + "anything", text_ + zero + text_}) {
    EXPECT_THAT(refusal(*tape_, text), HasSubstr("not JSON"));
    EXPECT_THROW(origin_of(text), DataError);
  }
}

// Regression: a schedule was accepted although its origin could be neither read nor written again.
TEST_F(DamagedScheduleFile, AnOriginThatIsNone) {
  for (const Json& origin : {Json(nullptr), Json(5), Json("lenet"), Json::array({1})}) {
    json_["origin"] = origin;
    EXPECT_THAT(refusal_of(json_), HasSubstr("'origin' is not an object"));
  }
}

TEST_F(DamagedScheduleFile, OtherFilesAndSchemas) {
  for (const char* text : {"[]", "null", "1", "\"schedule\"", "{}", R"({"type":"schedule"})",
                           R"({"type":1,"schema":1})", R"({"type":"schedule","schema":1})"}) {
    EXPECT_NE(refusal(*tape_, text), "") << text;
    EXPECT_THROW(origin_of(text), DataError) << text;
  }
  EXPECT_THROW(origin_of(R"({"type":"schedule","schema":1,"origin":[]})"), DataError);
  json_["schema"] = 2;
  EXPECT_THAT(refusal_of(json_), HasSubstr("schema 2, this version reads schema 1"));
  json_["schema"] = 1;
  json_["type"] = "summary";
  EXPECT_THAT(refusal_of(json_), HasSubstr("type 'summary'"));
}

// Calls `visit` for every place in the file, with a copy of the file and the place in it to change.
void at_every_place(const Json& json, const std::function<void(Json&, Json&, const std::string&)>& visit) {
  std::set<std::string> places;
  const Json leaves = json.flatten();
  for (const auto& [pointer, leaf] : leaves.items()) {
    for (Json::json_pointer place(pointer); !place.empty(); place = place.parent_pointer()) {
      places.insert(place.to_string());
    }
  }
  for (const std::string& place : places) {
    Json copy = json;
    visit(copy, copy[Json::json_pointer(place)], place);
  }
}

TEST_F(DamagedScheduleFile, TheWrongTypeAnywhere) {
  json_["origin"] = Json::object();  // any contents of the object are valid
  at_every_place(json_, [&](Json& copy, Json& place, const std::string& name) {
    const Json intact = place;
    const std::vector<Json> others{nullptr, true, 7.5, "text", Json::array({1}), Json::object({{"a", 1}})};
    for (const Json& other : others) {
      if (intact.type() == other.type()) {
        continue;
      }
      place = other;
      // This operand is the workspace, which may be null.
      const bool right = other.is_null() && name.ends_with("/operands/3");
      EXPECT_TRUE(right || !refusal_of(copy).empty()) << name << " = " << other;
    }
  });
}

TEST_F(DamagedScheduleFile, NumbersThatCannotBe) {
  std::size_t numbers = 0;
  at_every_place(json_, [&](Json& copy, Json& place, const std::string& name) {
    if (!place.is_number() || name.starts_with("/origin")) {
      return;
    }
    ++numbers;
    place = -1;
    EXPECT_THAT(refusal_of(copy), Not(IsEmpty())) << name;
    EXPECT_THAT(schema_errors(copy), Not(IsEmpty())) << name;
    place = 1e300;
    EXPECT_THAT(refusal_of(copy), Not(IsEmpty())) << name;
    if (name.ends_with("/bytes")) {
      return;  // any number is a valid size
    }
    for (const std::uint64_t number :
         {std::uint64_t{1000}, std::uint64_t{0xffffffff}, std::uint64_t{1} << 32U, ~std::uint64_t{0}}) {
      place = number;
      EXPECT_THAT(refusal_of(copy), Not(IsEmpty())) << name << " = " << number;
    }
  });
  EXPECT_GT(numbers, 100);
}

TEST_F(DamagedScheduleFile, NumbersTooLargeForAnything) {
  for (const char* number : {"1e999", "18446744073709551616", "-9223372036854775809", "1e", "0x10", "NaN"}) {
    std::string text = text_;
    text.replace(text.find("\"bytes\": 16"), 11, std::string("\"bytes\": ") + number);
    EXPECT_NE(refusal(*tape_, text), "") << number;
  }
}

TEST_F(DamagedScheduleFile, UnknownKeysAnywhere) {
  json_["origin"] = Json::object();
  std::size_t objects = 0;
  at_every_place(json_, [&](Json& copy, Json& place, const std::string& name) {
    if (place.is_object() && name != "/origin") {
      ++objects;
      place["surprise"] = 1;
      EXPECT_THAT(refusal_of(copy), HasSubstr("unknown key 'surprise'")) << name;
      EXPECT_THAT(schema_errors(copy), Not(IsEmpty())) << name;
    }
  });
  EXPECT_GT(objects, 50);
  json_["surprise"] = 1;
  EXPECT_THAT(refusal_of(json_), HasSubstr("unknown key 'surprise'"));
}

TEST_F(DamagedScheduleFile, MissingKeysAnywhere) {
  at_every_place(json_, [&](Json& copy, Json& place, const std::string& name) {
    const std::size_t slash = name.rfind('/');
    const std::string key = name.substr(slash + 1);
    Json& parent = copy[Json::json_pointer(name).parent_pointer()];
    if (!parent.is_object() || name.starts_with("/origin/") || key == "waits") {
      return;
    }
    ASSERT_EQ(&parent[key], &place);
    parent.erase(key);
    EXPECT_THAT(refusal_of(copy), Not(IsEmpty())) << name;
    EXPECT_THAT(schema_errors(copy), Not(IsEmpty())) << name;
  });
}

// An instruction has exactly the keys of its kind.
TEST_F(DamagedScheduleFile, KeysOfAnotherKind) {
  instruction("allocate")["value"] = 0;
  EXPECT_THAT(refusal_of(json_), HasSubstr("unknown key 'value'"));
  EXPECT_THAT(schema_errors(json_), Not(IsEmpty()));
  json_ = Json::parse(text_);
  instruction("load")["operands"] = Json::array();
  EXPECT_THAT(refusal_of(json_), HasSubstr("unknown key 'operands'"));
  EXPECT_THAT(schema_errors(json_), Not(IsEmpty()));
}

TEST_F(DamagedScheduleFile, OperandsThatDoNotFitTheOp) {
  instruction("launch")["operands"].push_back(0);
  EXPECT_THAT(refusal_of(json_), HasSubstr("conv.forward has 5 operands instead of 4"));
  instruction("launch")["operands"] = Json::array();
  EXPECT_THAT(refusal_of(json_), HasSubstr("conv.forward has 0 operands instead of 4"));
  instruction("launch")["operands"] = Json::array({nullptr, 0, 0, nullptr});
  EXPECT_THAT(refusal_of(json_), HasSubstr("is not a count"));
}

TEST_F(DamagedScheduleFile, NamesThatNobodyKnows) {
  for (const char* key : {"kind", "stream"}) {
    json_ = Json::parse(text_);
    instruction("load")[key] = "other";
    EXPECT_THAT(refusal_of(json_), HasSubstr("'other'")) << key;
    EXPECT_THAT(schema_errors(json_), Not(IsEmpty())) << key;
  }
  json_ = Json::parse(text_);
  json_["buffers"][0]["space"] = "other";
  EXPECT_THAT(refusal_of(json_), HasSubstr("'other'"));
  json_ = Json::parse(text_);
  json_["algorithms"][0] = "other";
  EXPECT_THAT(refusal_of(json_), HasSubstr("conv.forward has no algorithm \"other\" here"));
  json_["algorithms"].erase(0);
  EXPECT_THAT(refusal_of(json_), HasSubstr("4 algorithms for 5 ops"));
}

// Regression: reading accepted deeply nested JSON, and writing it again overflowed the stack.
TEST_F(DamagedScheduleFile, NestedTooDeeply) {
  constexpr std::size_t kDepth = 200000;
  const std::string deep = std::string(kDepth, '[') + std::string(kDepth, ']');
  EXPECT_THAT(refusal(*tape_, deep), HasSubstr("nested too deeply"));
  std::string text = text_;
  text.replace(text.find("\"origin\": {"), 11, "\"origin\": {\"deep\": " + deep + ",");
  EXPECT_THAT(refusal(*tape_, text), HasSubstr("nested too deeply"));
  EXPECT_THROW(origin_of(text), DataError);
}

// For any change of single bytes, reading returns a schedule or throws a DataError.
TEST_F(DamagedScheduleFile, BytesAtRandom) {
  for (std::uint64_t seed = 0; seed < 2000; ++seed) {
    std::mt19937_64 random(seed);
    std::string text = text_;
    for (std::uint64_t change = 0; change <= seed % 3; ++change) {
      text[random() % text.size()] = static_cast<char>(random());
    }
    EXPECT_NO_THROW(refusal(*tape_, text)) << "seed " << seed;
  }
}

// --- addresses -----------------------------------------------------------------------------------

// A schedule with recomputation, transfers and an arena.
class PlacedScheduleFile : public ::testing::Test {
 protected:
  Json& buffer(const std::string& name) {
    const auto found =
        std::ranges::find_if(json_["buffers"], [&](const Json& one) { return one["name"] == name; });
    return found == json_["buffers"].end() ? throw InvalidArgument("no buffer '" + name + "'") : *found;
  }

  // The checker's errors for a readable file; empty if there are none.
  std::string objection() const {
    const Schedule schedule = read(*tape_, json_.dump());
    try {
      require_valid(*tape_, schedule);
    } catch (const ScheduleError& error) {
      return error.what();
    }
    return {};
  }

  const TapePtr tape_ = model_tape("lenet");
  const Schedule schedule_ = make_schedule(*tape_, dropping_plan(*tape_, 2, 64));
  Json json_ = Json::parse(written(*tape_, schedule_));
};

TEST_F(PlacedScheduleFile, IsRightAndHasEverything) {
  EXPECT_EQ(objection(), "");
  EXPECT_GT(recomputed_ops(schedule_), 0U);
  EXPECT_GT(offload_bytes(*tape_, schedule_), 0U);
  EXPECT_EQ(json_["arena_bytes"], schedule_.arena_bytes);
}

TEST_F(PlacedScheduleFile, ABufferWithoutAnOffset) {
  buffer("conv1.y").erase("offset");
  EXPECT_THAT(objection(), HasSubstr("buffer 'conv1.y' has no place in the arena"));
}

TEST_F(PlacedScheduleFile, OffsetsBeyondTheArena) {
  const std::uint64_t arena = schedule_.arena_bytes;
  for (const std::uint64_t offset : {arena, arena - 1, ~std::uint64_t{0}}) {
    buffer("conv1.y")["offset"] = offset;
    EXPECT_THAT(objection(), HasSubstr("buffer 'conv1.y' does not lie inside the arena")) << offset;
  }
}

TEST_F(PlacedScheduleFile, AnArenaThatIsTooSmall) {
  json_["arena_bytes"] = schedule_.arena_bytes - 64;
  EXPECT_THAT(objection(), HasSubstr("does not lie inside the arena"));
  json_["arena_bytes"] = 1;
  EXPECT_THAT(objection(), HasSubstr("does not lie inside the arena"));
}

TEST_F(PlacedScheduleFile, OffsetsWithoutAnArena) {
  json_.erase("arena_bytes");
  EXPECT_THAT(objection(), HasSubstr("has a place in an arena"));
}

TEST_F(PlacedScheduleFile, PlacesOutsideDeviceMemoryOrOfWhatStays) {
  for (const auto& [key, value] : {std::pair<const char*, Json>("space", "host"), {"persistent", true}}) {
    const auto found =
        std::ranges::find_if(json_["buffers"], [&](const Json& one) { return one[key] == value; });
    ASSERT_NE(found, json_["buffers"].end()) << key;
    (*found)["offset"] = 0;
    const auto name = (*found)["name"].get<std::string>();
    EXPECT_THAT(objection(), HasSubstr("buffer '" + name + "' has a place in an arena"));
    found->erase("offset");
  }
}

TEST_F(PlacedScheduleFile, TwoBuffersInOnePlace) {
  const std::string first = tape_->value(tape_->inputs()[0]).name;
  const std::string second = tape_->value(tape_->inputs()[1]).name;
  buffer(second)["offset"] = buffer(first)["offset"];
  EXPECT_THAT(objection(), HasSubstr("allocates buffer '" + second + "' where buffer '" + first + "' lies"));
}

TEST_F(PlacedScheduleFile, APlaceThatIsTakenTooEarly) {
  std::size_t dropped = 0;
  for (Json& instruction : json_["instructions"]) {
    if (instruction["kind"] != "allocate" || !instruction.contains("waits")) {
      continue;
    }
    ++dropped;
    const Json waits = instruction["waits"];
    instruction.erase("waits");
    EXPECT_THAT(objection(), HasSubstr("takes the place of buffer")) << instruction;
    instruction["waits"] = waits;
  }
  EXPECT_GT(dropped, 0U);
}

TEST_F(PlacedScheduleFile, NumbersThatCannotBe) {
  const Json intact = json_;
  for (const Json& number : std::vector<Json>{-1, 1.5, 1e300, "0", nullptr}) {
    json_ = intact;
    json_["arena_bytes"] = number;
    EXPECT_THAT(refusal(*tape_, json_.dump()), HasSubstr("arena_bytes")) << number;
    EXPECT_THAT(schema_errors(json_), Not(IsEmpty())) << number;
    json_ = intact;
    buffer("conv1.y")["offset"] = number;
    EXPECT_THAT(refusal(*tape_, json_.dump()), HasSubstr("offset")) << number;
    EXPECT_THAT(schema_errors(json_), Not(IsEmpty())) << number;
  }
}

TEST_F(PlacedScheduleFile, RecomputationsThatDoNotFitTheOp) {
  const auto found =
      std::ranges::find_if(json_["instructions"], [](const Json& one) { return one["kind"] == "recompute"; });
  ASSERT_NE(found, json_["instructions"].end());
  const std::string op = tape_->op((*found)["op"].get<OpId>()).name;
  (*found)["operands"] = Json::array();
  EXPECT_THAT(refusal(*tape_, json_.dump()), HasSubstr(op + " has 0 operands instead of"));
}

}  // namespace
}  // namespace vdnn::testing
