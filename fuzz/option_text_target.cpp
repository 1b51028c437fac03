// Option values with a syntax: sizes, learning rate schedules, names of simulated devices.

#include <array>
#include <cmath>
#include <limits>

#include "fuzz/target.h"
#include "streams/sim/known_profiles.h"
#include "vdnn/error.h"
#include "vdnn/learning_rate.h"
#include "vdnn/sim_device.h"
#include "vdnn/size.h"

namespace vdnn::fuzz {

namespace {

bool run_size(const std::string& text) {
  const auto size = attempt<InvalidArgument>([&] { return parse_size(text); });
  if (!size) {
    return false;
  }
  require(parse_size(std::to_string(*size)) == *size, "a size equals its number of bytes as text");
  const std::string said = format_size(*size);
  require(said.find(std::to_string(*size)) != std::string::npos,
          "a formatted size contains the number of bytes");
  return true;
}

bool run_learning_rate(const std::string& text) {
  constexpr LearningRateRun kRun{.base_rate = 0.25, .total_steps = 1000, .steps_per_epoch = 10};
  const auto schedule = attempt<InvalidArgument>([&] { return LearningRateSchedule(text, kRun); });
  if (!schedule) {
    return false;
  }
  constexpr std::uint64_t kLast = std::numeric_limits<std::uint64_t>::max();
  for (const std::uint64_t step : std::array<std::uint64_t, 8>{0, 1, 9, 10, 999, 1000, kLast - 1, kLast}) {
    const float rate = schedule->rate(step);
    require(rate >= 0 && rate <= 0.25F, "a rate is at most the base rate");
  }
  return true;
}

bool run_profile_file(const std::string& text) {
  const auto profile = attempt<DataError>([&] { return parse_sim_profile(text); });
  require(!profile || (profile->granule_bytes > 0 && profile->seconds({.flops = 1}) > 0),
          "a profile has granules and positive times");
  return profile.has_value();
}

bool run_profile(const std::string& text) {
  const auto profile = attempt<InvalidArgument>([&] { return sim_profile(text); });
  require(!profile || profile->name == text, "a profile has the requested name");
  return profile.has_value();
}

}  // namespace

bool run_option_text(Input input) {
  const std::string text = to_text(input);
  const bool size = run_size(text);
  const bool rate = run_learning_rate(text);
  const bool profile = run_profile(text);
  require(!(size && rate), "no text is both a size and a learning rate schedule");
  return size || rate || profile || run_profile_file(text);
}

std::vector<Seed> option_text_seeds() {
  std::vector<Seed> seeds;
  for (const char* text :
       {"0", "512MiB", "1.5GiB", "12GB", "18446744073709551615", "0.001KB", "constant", "step:30e:0.1",
        "step:500", "cosine", "cosine:0.01", "cosine:1e-3,warmup:5e", "constant,warmup:100", "titan-x"}) {
    seeds.push_back({.name = "text-" + std::to_string(seeds.size()), .bytes = to_bytes(text)});
  }
  for (const KnownProfile& profile : known_profiles()) {
    seeds.push_back(
        {.name = "profile-" + std::string(profile.name), .bytes = to_bytes(std::string(profile.text))});
  }
  return seeds;
}

}  // namespace vdnn::fuzz
