// Device profiles in files: those of the library, and files with errors.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <regex>
#include <string>
#include <vector>

#include "streams/sim/known_profiles.h"
#include "tests/report/json_schema.h"
#include "vdnn/error.h"
#include "vdnn/sim_device.h"

namespace vdnn {
namespace {

using Json = nlohmann::ordered_json;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Json titan_x() {
  for (const KnownProfile& profile : known_profiles()) {
    if (profile.name == "titan-x") {
      return Json::parse(profile.text);
    }
  }
  return {};
}

std::string refusal(const std::string& text) {
  try {
    parse_sim_profile(text);
    return "accepted";
  } catch (const DataError& error) {
    return error.what();
  }
}

TEST(SimProfileFile, EachThatTheLibraryCarriesHasTheNameOfItsFile) {
  EXPECT_EQ(sim_profile_names().size(), known_profiles().size());
  for (const KnownProfile& profile : known_profiles()) {
    const SimProfile parsed = parse_sim_profile(profile.text);
    EXPECT_EQ(parsed.name, profile.name);
    EXPECT_FALSE(parsed.source.empty()) << profile.name;
  }
}

TEST(SimProfileFile, EachIsWhatTheSchemaSays) {
  const auto schema = testing::read_json(VDNN_DOCS_DIRECTORY "/device_profile.schema.json");
  for (const KnownProfile& profile : known_profiles()) {
    EXPECT_THAT(testing::SchemaCheck::errors(schema, testing::Json::parse(profile.text)), IsEmpty())
        << profile.name;
  }
}

Json behind_a_root_of_four() {
  Json json = titan_x();
  json["devices_on_root"] = {{"value", 4}, {"source", "a test"}};
  json["root_bytes_per_second"] = {{"value", 20e9}, {"source", "a test"}};
  return json;
}

TEST(SimProfileFile, DevicesBehindOneRootShareWhatItHas) {
  const SimProfile alone = parse_sim_profile(behind_a_root_of_four().dump());
  const double rate = alone.link_bytes_per_second.device_to_host;
  ASSERT_GT(rate, 10e9);
  EXPECT_EQ(with_shared_link(alone, 1).link_bytes_per_second.device_to_host, rate);
  for (const CopyDirection direction : {CopyDirection::kDeviceToHost, CopyDirection::kHostToDevice}) {
    EXPECT_EQ(with_shared_link(alone, 2).link_bytes_per_second[direction], 10e9);
    EXPECT_EQ(with_shared_link(alone, 4).link_bytes_per_second_both_ways[direction], 5e9);
    EXPECT_EQ(with_shared_link(alone, 8).link_bytes_per_second[direction], 5e9)
        << "the other devices have roots of their own";
  }
  EXPECT_EQ(with_shared_link(sim_profile("titan-x"), 4).link_bytes_per_second.device_to_host,
            sim_profile("titan-x").link_bytes_per_second.device_to_host);
}

TEST(SimProfileFile, ARootThatIsSlowerThanTheLinkSlowsASingleDeviceToo) {
  Json json = behind_a_root_of_four();
  json["root_bytes_per_second"]["value"] = 1e9;
  const SimProfile alone = with_shared_link(parse_sim_profile(json.dump()), 1);
  EXPECT_EQ(alone.link_bytes_per_second.host_to_device, 1e9);
  EXPECT_EQ(alone.link_bytes_per_second_both_ways.device_to_host, 1e9);
}

TEST(SimProfileFile, ARootHasARateForEachOfAPlausibleNumberOfDevices) {
  Json many = behind_a_root_of_four();
  many["devices_on_root"]["value"] = 1025;
  EXPECT_THAT(refusal(many.dump()), HasSubstr("devices_on_root"));
  Json slow = behind_a_root_of_four();
  slow["root_bytes_per_second"]["value"] = 3;
  EXPECT_THAT(refusal(slow.dump()), HasSubstr("share"));
}

TEST(SimProfileFile, ARootHasBothFigures) {
  for (const char* key : {"devices_on_root", "root_bytes_per_second"}) {
    Json json = behind_a_root_of_four();
    json.erase(key);
    EXPECT_THAT(refusal(json.dump()), HasSubstr(key));
  }
}

// Devices without a peer link reach each other over the host's link.
TEST(SimProfileFile, PeersHaveBothFiguresOrNone) {
  EXPECT_EQ(sim_profile("titan-x").peer_bytes_per_second, 0);
  EXPECT_EQ(sim_profile("rtx4090").peer_bytes_per_second, 0);
  Json json = titan_x();
  json["peer_bytes_per_second"] = {{"value", 50e9}, {"source", "a test"}};
  EXPECT_THAT(refusal(json.dump()), HasSubstr("lacks 'peer_seconds'"));
  json["peer_seconds"] = {{"value", 2e-6}, {"source", "a test"}};
  EXPECT_EQ(parse_sim_profile(json.dump()).peer_bytes_per_second, 50e9);
  EXPECT_EQ(parse_sim_profile(json.dump()).peer_seconds, 2e-6);
  json["peer_seconds"]["value"] = -1;
  EXPECT_THAT(refusal(json.dump()), HasSubstr("'peer_seconds' is"));
  json.erase("peer_bytes_per_second");
  EXPECT_THAT(refusal(json.dump()), HasSubstr("lacks 'peer_bytes_per_second'"));
  for (const char* name : {"v100-16", "v100-32", "a100", "h100", "h200", "b200"}) {
    const SimProfile profile = sim_profile(name);
    EXPECT_GT(profile.peer_bytes_per_second, profile.link_bytes_per_second.device_to_host) << name;
  }
}

TEST(SimProfileFile, FiguresAreThoseOfTheFile) {
  const SimProfile profile = parse_sim_profile(titan_x().dump());
  EXPECT_EQ(profile.memory_bytes, std::uint64_t{12} << 30);
  EXPECT_EQ(profile.host_memory_bytes, std::uint64_t{64} << 30);
  EXPECT_EQ(profile.granule_bytes, 2U << 20);
  EXPECT_DOUBLE_EQ(profile.flops_per_second.convolution, 0.6 * 7e12);
  EXPECT_DOUBLE_EQ(profile.bytes_per_second, 0.8 * 336e9);
  EXPECT_DOUBLE_EQ(profile.link_bytes_per_second.device_to_host, 12.8e9);
  EXPECT_DOUBLE_EQ(profile.link_bytes_per_second_both_ways.host_to_device, 12.8e9);
  EXPECT_DOUBLE_EQ(profile.launch_seconds, 5e-6);
}

// Tensor cores multiply TF32 and bf16 from Ampere on, and fp16 from Volta on.
TEST(SimProfileFile, GpusHaveRatesOfTheTypesThatTheirTensorCoresMultiply) {
  for (const std::string& name : sim_profile_names()) {
    SCOPED_TRACE(name);
    const FlopRates rates = sim_profile(name).flops_per_second;
    const bool volta = name.starts_with("v100");
    const bool ampere = !volta && name != "titan-x" && name != "cpu";
    EXPECT_EQ(rates.tf32 > 0, ampere);
    EXPECT_EQ(rates.bf16 > 0, ampere);
    EXPECT_EQ(rates.fp16 > 0, ampere || volta);
    if (ampere) {
      EXPECT_GE(rates.tf32, rates.convolution);
      EXPECT_DOUBLE_EQ(rates.fp16, rates.bf16);
      // On datasheets the rate of fp16 is twice that of TF32; each type has its own efficiency.
      EXPECT_GE(rates.fp16, 1.97 * rates.tf32);
      EXPECT_LE(rates.fp16, 2 / 0.28 * rates.tf32);
    }
  }
}

// A source begins with an efficiency, and the first rate in it is that of the datasheet.
double stated_flops_per_second(const std::string& source) {
  static const std::regex pattern(R"(^(0\.\d+)\D.*?([0-9.]+) TFLOP/s)");
  std::smatch parts;
  return std::regex_search(source, parts, pattern) ? std::stod(parts[1]) * std::stod(parts[2]) * 1e12 : 0;
}

// One efficiency applies to each GPU and type, whatever the operation and the network.
TEST(SimProfileFile, RatesAreTheStatedSharesOfTheStatedPeaks) {
  for (const KnownProfile& profile : known_profiles()) {
    if (profile.name == "cpu") {
      continue;  // its rates were measured
    }
    SCOPED_TRACE(profile.name);
    const Json json = Json::parse(profile.text);
    const Json& rates = json.at("flops_per_second");
    for (const auto& [type, rate] : rates.items()) {
      const double value = rate.at("value").get<double>();
      EXPECT_NEAR(stated_flops_per_second(rate.at("source")), value, 1e-9 * value) << type;
    }
    EXPECT_EQ(rates.at("matrix_product").at("value"), rates.at("convolution").at("value"));
    EXPECT_EQ(rates.at("other").at("value"), rates.at("convolution").at("value"));
  }
  EXPECT_EQ(sim_profile("v100-16").flops_per_second.convolution,
            sim_profile("v100-32").flops_per_second.convolution);
  EXPECT_EQ(sim_profile("v100-16").flops_per_second.fp16, sim_profile("v100-32").flops_per_second.fp16);
}

TEST(SimProfileFile, RatesOfTypesAreFiguresLikeTheOthers) {
  for (const std::string type : {"tf32", "fp16", "bf16"}) {
    Json json = titan_x();
    json["flops_per_second"][type] = {{"value", 5e12}, {"source", "a test"}};
    EXPECT_EQ(refusal(json.dump()), "accepted");
    json["flops_per_second"][type]["value"] = 0;
    EXPECT_THAT(refusal(json.dump()), HasSubstr("'" + type + "' is not a plausible rate"));
    json["flops_per_second"][type] = {{"value", 5e12}};
    EXPECT_THAT(refusal(json.dump()), HasSubstr("'" + type + "' lacks 'source'"));
  }
}

// The paths of all figures of the profile and of 'flops_per_second'; other entries are counts and texts.
std::vector<std::string> figures() {
  std::vector<std::string> paths;
  const Json whole = titan_x();
  for (const auto& [key, value] : whole.items()) {
    if (value.is_object() && value.contains("value")) {
      paths.push_back("/" + key);
    }
  }
  for (const auto& [key, value] : whole.at("flops_per_second").items()) {
    paths.push_back("/flops_per_second/" + key);
  }
  return paths;
}

std::string last(const std::string& path) {
  return path.substr(path.rfind('/') + 1);
}

TEST(SimProfileFile, AKeyThatIsMissingIsNamed) {
  const Json whole = titan_x();
  for (const auto& item : whole.items()) {
    Json without = whole;
    without.erase(item.key());
    EXPECT_THAT(refusal(without.dump()), HasSubstr("lacks '" + item.key() + "'"));
  }
  for (const std::string& path : figures()) {
    for (const char* const part : {"value", "source"}) {
      Json without = whole;
      without[Json::json_pointer(path)].erase(part);
      EXPECT_THAT(refusal(without.dump()),
                  HasSubstr("'" + last(path) + "' lacks '" + std::string(part) + "'"));
    }
  }
}

TEST(SimProfileFile, AKeyThatNobodyKnowsIsNamed) {
  for (const std::string& path :
       {std::string(), std::string("/flops_per_second"), std::string("/memory_bytes")}) {
    Json with = titan_x();
    with[Json::json_pointer(path + "/speed")] = 1;
    EXPECT_THAT(refusal(with.dump()), HasSubstr("unknown key 'speed'")) << path;
  }
}

TEST(SimProfileFile, AValueThatCannotBeIsNamed) {
  for (const std::string& path : figures()) {
    for (const Json& value : {Json(-1), Json("fast"), Json(nullptr)}) {
      Json with = titan_x();
      with[Json::json_pointer(path + "/value")] = value;
      EXPECT_THAT(refusal(with.dump()), HasSubstr("'" + last(path) + "' is")) << value;
    }
    Json with = titan_x();
    with[Json::json_pointer(path + "/source")] = "";
    EXPECT_THAT(refusal(with.dump()), HasSubstr("'" + last(path) + "' has no source"));
    if (path != "/launch_seconds") {
      Json nothing = titan_x();
      nothing[Json::json_pointer(path + "/value")] = 0;
      EXPECT_THAT(refusal(nothing.dump()), HasSubstr("'" + last(path) + "' is"));
    }
  }
}

TEST(SimProfileFile, FiguresThatContradictOneAnotherAreRefused) {
  const auto with = [](const char* path, const Json& value) {
    Json json = titan_x();
    json[Json::json_pointer(path)] = value;
    return refusal(json.dump());
  };
  EXPECT_THAT(with("/granule_bytes/value", 3000), HasSubstr("'titan-x': the granule must be a power of two"));
  EXPECT_THAT(with("/alignment_bytes/value", 3), HasSubstr("the alignment must be a power of two"));
  EXPECT_THAT(with("/memory_bytes/value", 1000), HasSubstr("the granule must fit into the memory"));
  EXPECT_THAT(with("/device_to_host_bytes_per_second_both_ways/value", 12.9e9), HasSubstr("no faster"));
  EXPECT_THAT(with("/name", "Titan X"), HasSubstr("the name 'Titan X' may consist of"));
  EXPECT_THAT(with("/schema", 2), HasSubstr("its schema is not 1"));
}

TEST(SimProfileFile, WhatIsNoProfileIsRefused) {
  EXPECT_THAT(refusal(""), HasSubstr("no JSON"));
  EXPECT_THAT(refusal("{\"schema\": 1"), HasSubstr("no JSON"));
  EXPECT_THAT(refusal("[]"), HasSubstr("the profile is not an object"));
  EXPECT_THAT(refusal("[[[[[[]]]]]]"), HasSubstr("nested too deep"));
}

}  // namespace
}  // namespace vdnn
