// Schedule files (src/plan/schedule_file.cpp). Accepted schedules are passed to the checker and the
// predictor.

#include <algorithm>
#include <cmath>
#include <sstream>

#include "fuzz/target.h"
#include "tests/plan/tapes.h"
#include "vdnn/checker.h"
#include "vdnn/error.h"
#include "vdnn/predictor.h"
#include "vdnn/schedule_file.h"

namespace vdnn::fuzz {

namespace {

using testing::TapePtr;

const Tape& tape() {
  static const TapePtr kTape = testing::tiny_tape();
  return *kTape;
}

std::string written(const Schedule& schedule, const std::string& origin) {
  std::ostringstream out;
  write_schedule(out, tape(), schedule, origin);
  return out.str();
}

std::optional<Schedule> read(const std::string& text) {
  return attempt<DataError>([&] {
    std::istringstream in(text);
    return read_schedule(in, tape());
  });
}

std::optional<std::string> read_origin(const std::string& text) {
  return attempt<DataError>([&] {
    std::istringstream in(text);
    return read_schedule_origin(in);
  });
}

bool same(const Schedule& a, const Schedule& b) {
  const auto same_buffer = [](const Buffer& x, const Buffer& y) {
    return x.name == y.name && x.bytes == y.bytes && x.space == y.space && x.persistent == y.persistent;
  };
  return a.algorithms == b.algorithms && a.instructions == b.instructions &&
         std::ranges::equal(a.buffers, b.buffers, same_buffer);
}

// Buffers of at most this many bytes fit into the predictor's memory (src/exec/predictor.cpp) with any
// padding: the limit is half of that memory.
constexpr std::uint64_t kPlaceable = std::uint64_t{1} << 49;

bool is_placeable(const Schedule& schedule) {
  std::uint64_t bytes = 0;
  for (const Buffer& buffer : schedule.buffers) {
    if (buffer.bytes > kPlaceable - bytes) {
      return false;
    }
    bytes += buffer.bytes;
  }
  return true;
}

// If the checker accepts a schedule, the schedule must run, unless its buffers are larger than any memory.
void check_prediction(const Schedule& schedule) {
  const auto prediction = attempt<InvalidArgument>(
      [&] { return predict(tape(), schedule, {.profile = sim_profile("titan-x")}); });
  require(prediction || !is_placeable(schedule), "a schedule that the checker accepts runs");
  if (prediction) {
    require(std::isfinite(prediction->step_seconds) && prediction->step_seconds > 0, "a step takes time");
    require(prediction->peak_bytes > 0, "a step takes memory");
  }
}

bool run_text(const std::string& text) {
  const std::optional<std::string> origin = read_origin(text);
  const std::optional<Schedule> schedule = read(text);
  if (!schedule) {
    return false;
  }
  require(origin.has_value(), "a schedule has an origin");
  require(text.find('\0') == std::string::npos, "JSON has no zero byte");
  const std::string again = written(*schedule, *origin);
  const std::optional<Schedule> back = read(again);
  require(back && same(*back, *schedule) && read_origin(again) == origin, "a rewritten schedule is equal");
  std::ostringstream people;
  print(people, tape(), *schedule);
  if (check_schedule(tape(), *schedule).empty()) {
    check_prediction(*schedule);
  }
  return true;
}

// Corrects the tape's fingerprint, since no mutation finds the right one.
std::string with_right_fingerprint(std::string text) {
  constexpr std::string_view kKey = R"("tape_fingerprint": ")";
  const std::string right = fingerprint(tape());
  if (const std::size_t at = text.find(kKey); at != std::string::npos) {
    const std::size_t begin = at + kKey.size();
    text.replace(begin, std::min(right.size(), text.size() - begin), right);
  }
  return text;
}

}  // namespace

bool run_schedule(Input input) {
  const std::string text = to_text(input);
  const std::string mended = with_right_fingerprint(text);
  const bool accepted = run_text(text);
  return mended == text ? accepted : run_text(mended);
}

std::vector<Seed> schedule_seeds() {
  std::vector<Seed> seeds;
  for (const Policy policy : testing::all_policies()) {
    for (const AlgorithmPreference preference : testing::all_preferences()) {
      seeds.push_back(
          {.name = to_string(policy) + "-" + to_string(preference),
           .bytes = to_bytes(written(testing::schedule_of(tape(), policy, preference), R"({"batch":2})"))});
    }
  }
  return seeds;
}

}  // namespace vdnn::fuzz
