#include "src/report/tensorboard_events.h"

#include <unistd.h>

#include <array>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <system_error>
#include <utility>

#include "src/report/output_path.h"
#include "vdnn/error.h"

namespace vdnn {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view kFileVersion = "brain.Event:2";

constexpr std::array<std::uint32_t, 256> make_crc_table() {
  constexpr std::uint32_t kReflectedPolynomial = 0x82F63B78;
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t byte = 0; byte < table.size(); ++byte) {
    std::uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) {
      crc = (crc >> 1) ^ ((crc & 1) != 0 ? kReflectedPolynomial : 0);
    }
    table[byte] = crc;
  }
  return table;
}

constexpr std::array<std::uint32_t, 256> kCrcTable = make_crc_table();

template <class Integer>
std::string little_endian(Integer value) {
  std::string bytes;
  for (std::size_t i = 0; i < sizeof(Integer); ++i) {
    bytes += static_cast<char>(value >> (8 * i) & 0xFF);
  }
  return bytes;
}

// --- protocol buffers --------------------------------------------------------------------------------------

// The encodings of fields.
enum WireType : std::uint8_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

std::string varint(std::uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) {
    bytes += static_cast<char>((value & 0x7F) | 0x80);
  }
  return bytes + static_cast<char>(value);
}

std::string field_key(std::uint32_t field, WireType type) {
  return varint(std::uint64_t{field} << 3 | type);
}

std::string bytes_field(std::uint32_t field, std::string_view bytes) {
  return field_key(field, kBytes) + varint(bytes.size()) + std::string(bytes);
}

std::string double_field(std::uint32_t field, double value) {
  return field_key(field, kFixed64) + little_endian(std::bit_cast<std::uint64_t>(value));
}

std::string varint_field(std::uint32_t field, std::uint64_t value) {
  return field_key(field, kVarint) + varint(value);
}

std::string float_field(std::uint32_t field, float value) {
  return field_key(field, kFixed32) + little_endian(std::bit_cast<std::uint32_t>(value));
}

// Numbers of the fields in tensorflow/core/util/event.proto and framework/summary.proto.
std::string encode_event(double wall_time, std::uint64_t step) {
  return double_field(1, wall_time) + varint_field(2, step);
}

// A SessionLog whose status is START.
std::string encode_session_start() {
  return varint_field(1, 1);
}

std::string encode_scalar(const ScalarEvent& scalar) {
  return bytes_field(1, scalar.tag) + float_field(2, static_cast<float>(scalar.value));
}

// --- files -------------------------------------------------------------------------------------------------

double system_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "localhost";
}

std::string event_file_name(double now_seconds, int number) {
  return "events.out.tfevents." + std::to_string(static_cast<std::int64_t>(now_seconds)) + "." + host_name() +
         "." + std::to_string(::getpid()) + "." + std::to_string(number);
}

// Avoids existing names, since a process may make several files in one second.
fs::path unused_path(const fs::path& folder, double now_seconds) {
  int number = 0;
  std::error_code error;  // ignored: a path that cannot be examined cannot be written either, and that error
                          // is reported
  while (fs::exists(folder / event_file_name(now_seconds, number), error)) {
    ++number;
  }
  return folder / event_file_name(now_seconds, number);
}

}  // namespace

std::uint32_t crc32c(std::string_view data) {
  std::uint32_t crc = 0xFFFFFFFF;
  for (const char each : data) {
    crc = (crc >> 8) ^ kCrcTable[(crc ^ static_cast<unsigned char>(each)) & 0xFF];
  }
  return ~crc;
}

std::uint32_t masked_crc32c(std::string_view data) {
  constexpr std::uint32_t kMask = 0xA282EAD8;
  return std::rotr(crc32c(data), 15) + kMask;
}

void check_event_folder(const fs::path& folder) {
  std::error_code error;
  std::error_code no_folder;
  fs::create_directories(folder, error);
  if (error && !fs::is_directory(folder, no_folder)) {
    throw InvalidArgument("cannot make the folder '" + folder.string() + "': " + error.message());
  }
  check_output_path(unused_path(folder, system_seconds()));
}

EventFile::EventFile(const fs::path& folder, std::uint64_t first_step, std::function<double()> now_seconds)
    : now_seconds_(now_seconds ? std::move(now_seconds) : system_seconds) {
  check_event_folder(folder);
  const double now = now_seconds_();
  path_ = unused_path(folder, now);
  file_.open(path_, std::ios::binary | std::ios::trunc);
  write_record(double_field(1, now) + bytes_field(3, kFileVersion));
  write_record(encode_event(now, first_step) + bytes_field(7, encode_session_start()));
}

void EventFile::add(std::uint64_t step, std::span<const ScalarEvent> scalars) {
  std::string summary;
  for (const ScalarEvent& scalar : scalars) {
    summary += bytes_field(1, encode_scalar(scalar));
  }
  write_record(encode_event(now_seconds_(), step) + bytes_field(5, summary));
}

void EventFile::write_record(const std::string& data) {
  const std::string length = little_endian(std::uint64_t{data.size()});
  file_ << length << little_endian(masked_crc32c(length)) << data << little_endian(masked_crc32c(data))
        << std::flush;
  if (!file_) {
    throw DataError("writing to '" + path_.string() + "' failed: " + std::strerror(errno));
  }
}

}  // namespace vdnn
