#include "vdnn/size.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <optional>
#include <utility>

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

// Sizes are written in the first kWrittenUnits of these units.
constexpr std::size_t kWrittenUnits = 9;
constexpr std::array<Unit, 13> kUnits{{{"", 1},
                                       {"KiB", 1ULL << 10},
                                       {"MiB", 1ULL << 20},
                                       {"GiB", 1ULL << 30},
                                       {"TiB", 1ULL << 40},
                                       {"KB", 1'000},
                                       {"MB", 1'000'000},
                                       {"GB", 1'000'000'000},
                                       {"TB", 1'000'000'000'000},
                                       {"K", 1ULL << 10},
                                       {"M", 1ULL << 20},
                                       {"G", 1ULL << 30},
                                       {"T", 1ULL << 40}}};

[[noreturn]] void reject_size(std::string_view text) {
  throw InvalidArgument(
      "'" + std::string(text) +
      "' is not a size: write 512MiB or 12GiB (binary, as is 12G), 12GB (decimal), or a bare number of "
      "bytes");
}

bool is_number(std::string_view digits) {
  return !digits.empty() && digits.find_first_not_of("0123456789") == std::string_view::npos;
}

// `0.digits` of a unit in bytes, exactly: floating point would reject 1.001KB and round 9007199254740993.0.
// Empty if that is not a whole number of bytes.
std::optional<std::uint64_t> fraction_bytes(std::string_view digits, std::uint64_t unit) {
  std::uint64_t bytes = 0;
  for (auto digit = digits.rbegin(); digit != digits.rend(); ++digit) {
    // If a fraction is a whole number of bytes, so is ten times the part after its first digit.
    const std::uint64_t tenfold = bytes + static_cast<std::uint64_t>(*digit - '0') * unit;
    if (tenfold % 10 != 0) {
      return std::nullopt;
    }
    bytes = tenfold / 10;
  }
  return bytes;
}

}  // namespace

std::uint64_t parse_size(std::string_view text) {
  const std::size_t number_end = std::min(text.find_first_not_of("0123456789."), text.size());
  const std::string_view number = text.substr(0, number_end);
  const auto* const unit = std::ranges::find(kUnits, text.substr(number_end), &Unit::name);
  const std::size_t point = std::min(number.find('.'), number.size());
  const std::string_view whole = number.substr(0, point);
  const std::string_view fraction = point < number.size() ? number.substr(point + 1) : "0";
  if (unit == kUnits.end() || !is_number(whole) || !is_number(fraction)) {
    reject_size(text);
  }
  std::uint64_t value = 0;
  const std::optional<std::uint64_t> rest = fraction_bytes(fraction, unit->bytes);
  if (std::from_chars(whole.data(), whole.data() + whole.size(), value).ec != std::errc() || !rest) {
    reject_size(text);
  }
  return checked_add(checked_multiply(value, unit->bytes), *rest);
}

std::string format_size(std::uint64_t bytes) {
  const std::string rounded = format_rounded_size(bytes);
  return bytes < 1024 ? rounded : rounded + " (" + std::to_string(bytes) + " bytes)";
}

std::string format_rounded_size(std::uint64_t bytes) {
  if (bytes < 1024) {
    return std::to_string(bytes) + " bytes";
  }
  std::size_t unit = 1;
  while (unit < 4 && bytes >= kUnits[unit + 1].bytes) {
    ++unit;
  }
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.4g %s",
                static_cast<double>(bytes) / static_cast<double>(kUnits[unit].bytes),
                kUnits[unit].name.data());
  return text.data();
}

std::string exact_size(std::uint64_t bytes) {
  std::string shortest;
  // Bare bytes come last: among texts of the same length, one with a unit is easier to read.
  for (std::size_t each = kWrittenUnits; each > 0; --each) {
    const Unit& unit = kUnits[each - 1];
    std::string text = std::to_string(bytes / unit.bytes).append(unit.name);
    if (bytes % unit.bytes == 0 && (shortest.empty() || text.size() < shortest.size())) {
      shortest = std::move(text);
    }
  }
  return shortest;
}

}  // namespace vdnn
