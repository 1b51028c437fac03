#include "vdnn/size.h"

#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <limits>

namespace vdnn {

std::uint64_t checked_multiply(std::uint64_t a, std::uint64_t b) {
  std::uint64_t result = 0;
  if (__builtin_mul_overflow(a, b, &result)) {
    throw InvalidArgument("size overflows 64 bits: " + std::to_string(a) + " x " + std::to_string(b));
  }
  return result;
}

std::uint64_t checked_add(std::uint64_t a, std::uint64_t b) {
  std::uint64_t result = 0;
  if (__builtin_add_overflow(a, b, &result)) {
    throw InvalidArgument("size overflows 64 bits: " + std::to_string(a) + " + " + std::to_string(b));
  }
  return result;
}

std::uint64_t round_up(std::uint64_t value, std::uint64_t unit) {
  const std::uint64_t rest = value % unit;
  return rest == 0 ? value : checked_add(value, unit - rest);
}

namespace {

struct Unit {
  std::string_view name;
  std::uint64_t bytes;
};

constexpr std::array<Unit, 9> kUnits{{{"", 1},
                                      {"KiB", 1ULL << 10},
                                      {"MiB", 1ULL << 20},
                                      {"GiB", 1ULL << 30},
                                      {"TiB", 1ULL << 40},
                                      {"KB", 1'000},
                                      {"MB", 1'000'000},
                                      {"GB", 1'000'000'000},
                                      {"TB", 1'000'000'000'000}}};

[[noreturn]] void reject_size(std::string_view text) {
  throw InvalidArgument(
      "'" + std::string(text) +
      "' is not a size: write 512MiB or 12GiB (binary), 12GB (decimal), or a bare number of "
      "bytes");
}

}  // namespace

std::uint64_t parse_size(std::string_view text) {
  const std::size_t digits = text.find_first_not_of("0123456789.");
  const std::string_view number = text.substr(0, digits);
  const std::string_view suffix = digits == std::string_view::npos ? "" : text.substr(digits);
  const Unit* unit = nullptr;
  for (const Unit& candidate : kUnits) {
    if (candidate.name == suffix) {
      unit = &candidate;
    }
  }
  if (unit == nullptr || number.empty()) {
    reject_size(text);
  }
  const char* const end = number.data() + number.size();
  if (number.find('.') == std::string_view::npos) {
    std::uint64_t value = 0;
    const auto parsed = std::from_chars(number.data(), end, value);
    if (parsed.ec != std::errc() || parsed.ptr != end) {
      reject_size(text);
    }
    return checked_multiply(value, unit->bytes);
  }
  double value = 0;
  const auto parsed = std::from_chars(number.data(), end, value);
  const double bytes = value * static_cast<double>(unit->bytes);
  if (parsed.ec != std::errc() || parsed.ptr != end || bytes != std::floor(bytes) || bytes >= 0x1p63) {
    reject_size(text);
  }
  return static_cast<std::uint64_t>(bytes);
}

std::string format_size(std::uint64_t bytes) {
  if (bytes < 1024) {
    return std::to_string(bytes) + " bytes";
  }
  std::size_t unit = 1;
  while (unit < 4 && bytes >= kUnits[unit + 1].bytes) {
    ++unit;
  }
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "%.4g %s (%llu bytes)",
                static_cast<double>(bytes) / static_cast<double>(kUnits[unit].bytes),
                kUnits[unit].name.data(), static_cast<unsigned long long>(bytes));
  return text.data();
}

}  // namespace vdnn
