#include <algorithm>
#include <bit>
#include <nlohmann/json.hpp>
#include <utility>

#include "src/base/json_object.h"
#include "src/base/json_text.h"
#include "src/base/near_names.h"
#include "streams/sim/known_profiles.h"
#include "vdnn/error.h"
#include "vdnn/sim_device.h"

namespace vdnn {

namespace {

using Json = nlohmann::ordered_json;

constexpr int kSchema = 1;
constexpr int kDeepest = 3;  // levels: down to the figure of a kind of arithmetic
constexpr const char* kDocument = "device profile";

// Limits beyond any machine, and far below an overflow.
constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 50;
constexpr std::uint64_t kMostDevices = 1024;
constexpr double kMostRate = 1e24;  // per second
constexpr double kMostSeconds = 1e6;

// A figure is an object with a value and its source; the source is for people who read the file.
class Figures {
 public:
  Figures(const Json& json, const std::string& where) : object_(json, kDocument, where), where_(where) {}

  JsonObject<Json>& object() { return object_; }

  std::uint64_t bytes(const char* key) { return count(key, kMostBytes); }
  std::uint64_t count(const char* key, std::uint64_t most) {
    const Json value = value_of(key);
    const std::uint64_t count = object_.number(value, key);
    if (count == 0 || count > most) {
      object_.fail(key, "is not a plausible number");
    }
    return count;
  }
  double rate(const char* key) {
    const double value = real(key);
    if (value < 1 || value > kMostRate) {
      object_.fail(key, "is not a plausible rate");
    }
    return value;
  }
  // 0 if the key is absent.
  double rate_or_none(const char* key) { return object_.has(key) ? rate(key) : 0; }
  double seconds(const char* key) {
    const double value = real(key);
    if (value < 0 || value > kMostSeconds) {
      object_.fail(key, "is not a plausible time");
    }
    return value;
  }

  void finish() const { object_.require_no_other_keys(); }

 private:
  Json value_of(const char* key) {
    JsonObject<Json> figure(object_.at(key), kDocument, where_ + ", '" + key + "'");
    Json value = figure.at("value");
    if (figure.text("source").empty()) {
      object_.fail(key, "has no source");
    }
    figure.require_no_other_keys();
    return value;
  }
  double real(const char* key) { return object_.real(value_of(key), key); }

  JsonObject<Json> object_;
  std::string where_;
};

// Names become part of the names of devices and files, and of JSON.
void require_plain(const std::string& name) {
  const bool plain = !name.empty() && std::ranges::all_of(name, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '.' || c == '_';
  });
  if (!plain) {
    throw DataError(std::string(kDocument) + ": the name '" + name +
                    "' may consist of small letters, digits, '-', '.' and '_'");
  }
}

void require(const SimProfile& profile, bool holds, const char* what) {
  if (!holds) {
    throw DataError(std::string(kDocument) + " '" + profile.name + "': " + what);
  }
}

LinkRates link_from(Figures& figures, const char* device_to_host, const char* host_to_device) {
  return {.device_to_host = figures.rate(device_to_host), .host_to_device = figures.rate(host_to_device)};
}

}  // namespace

namespace {

// 0 for fp32, or if there is no such rate.
double rate_of_type(const FlopRates& rates, ProductPrecision precision) {
  switch (precision) {
    case ProductPrecision::kTf32:
      return rates.tf32;
    case ProductPrecision::kFp16:
      return rates.fp16;
    case ProductPrecision::kBf16:
      return rates.bf16;
    case ProductPrecision::kFp32:
      break;
  }
  return 0;
}

}  // namespace

double FlopRates::of(const Cost& cost) const {
  if (cost.arithmetic == Arithmetic::kOther) {
    return other;
  }
  if (const double rate = rate_of_type(*this, cost.precision); rate > 0) {
    return rate;
  }
  return cost.arithmetic == Arithmetic::kConvolution ? convolution : matrix_product;
}

double SimProfile::seconds(const Cost& cost) const {
  if (cost.seconds > 0) {
    return cost.seconds;
  }
  return launch_seconds + std::max(cost.flops / flops_per_second.of(cost), cost.bytes / bytes_per_second);
}

SimProfile parse_sim_profile(std::string_view text) {
  const Json json = parse_json_text<Json>(text, kDeepest);
  if (json.is_discarded()) {
    throw DataError(std::string(kDocument) + ": no JSON, or nested too deep");
  }
  Figures figures(json, "the profile");
  if (figures.object().number("schema") != kSchema) {
    throw DataError(std::string(kDocument) + ": its schema is not " + std::to_string(kSchema));
  }
  SimProfile profile;
  profile.name = figures.object().text("name");
  require_plain(profile.name);
  profile.source = figures.object().text("what");
  profile.memory_bytes = figures.bytes("memory_bytes");
  profile.host_memory_bytes = figures.bytes("host_memory_bytes");
  profile.granule_bytes = figures.bytes("granule_bytes");
  profile.alignment_bytes = figures.bytes("alignment_bytes");
  Figures flops(figures.object().at("flops_per_second"), "'flops_per_second'");
  profile.flops_per_second = {.convolution = flops.rate("convolution"),
                              .matrix_product = flops.rate("matrix_product"),
                              .other = flops.rate("other"),
                              .tf32 = flops.rate_or_none("tf32"),
                              .fp16 = flops.rate_or_none("fp16"),
                              .bf16 = flops.rate_or_none("bf16")};
  flops.finish();
  profile.bytes_per_second = figures.rate("bytes_per_second");
  profile.link_bytes_per_second =
      link_from(figures, "device_to_host_bytes_per_second", "host_to_device_bytes_per_second");
  profile.link_bytes_per_second_both_ways = link_from(figures, "device_to_host_bytes_per_second_both_ways",
                                                      "host_to_device_bytes_per_second_both_ways");
  profile.launch_seconds = figures.seconds("launch_seconds");
  if (figures.object().has("devices_on_root") || figures.object().has("root_bytes_per_second")) {
    profile.devices_on_root = figures.count("devices_on_root", kMostDevices);
    profile.root_bytes_per_second = figures.rate("root_bytes_per_second");
  }
  if (figures.object().has("peer_bytes_per_second") || figures.object().has("peer_seconds")) {
    profile.peer_bytes_per_second = figures.rate("peer_bytes_per_second");
    profile.peer_seconds = figures.seconds("peer_seconds");
  }
  figures.finish();
  require(profile,
          profile.root_bytes_per_second == 0 ||
              profile.root_bytes_per_second >= static_cast<double>(profile.devices_on_root),
          "each device on a root must have a share of it");
  require(profile, std::has_single_bit(profile.granule_bytes), "the granule must be a power of two");
  require(profile, std::has_single_bit(profile.alignment_bytes), "the alignment must be a power of two");
  require(profile, profile.granule_bytes <= profile.memory_bytes, "the granule must fit into the memory");
  for (const CopyDirection direction : {CopyDirection::kDeviceToHost, CopyDirection::kHostToDevice}) {
    require(profile,
            profile.link_bytes_per_second_both_ways[direction] <= profile.link_bytes_per_second[direction],
            "a link is no faster while both directions are busy");
  }
  return profile;
}

SimProfile with_shared_link(SimProfile profile, std::uint64_t devices) {
  if (profile.root_bytes_per_second > 0) {
    const double share =
        profile.root_bytes_per_second / static_cast<double>(std::min(devices, profile.devices_on_root));
    for (LinkRates* rates : {&profile.link_bytes_per_second, &profile.link_bytes_per_second_both_ways}) {
      rates->device_to_host = std::min(rates->device_to_host, share);
      rates->host_to_device = std::min(rates->host_to_device, share);
    }
  }
  return profile;
}

SimProfile sim_profile(const std::string& name) {
  std::string known;
  for (const KnownProfile& profile : known_profiles()) {
    if (profile.name == name) {
      return parse_sim_profile(profile.text);
    }
    known += (known.empty() ? "" : ", ") + std::string(profile.name);
  }
  throw InvalidArgument("there is no sim profile '" + name + "'" + did_you_mean(name, sim_profile_names()) +
                        "; there are " + known);
}

std::vector<std::string> sim_profile_names() {
  std::vector<std::string> names;
  for (const KnownProfile& profile : known_profiles()) {
    names.emplace_back(profile.name);
  }
  return names;
}

}  // namespace vdnn
