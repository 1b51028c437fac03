#include "vdnn/safetensors.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <system_error>
#include <utility>

#include "src/train/atomic_file.h"
#include "src/train/file_descriptor.h"
#include "vdnn/error.h"
#include "vdnn/size.h"

namespace vdnn {

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

static_assert(std::endian::native == std::endian::little,
              "the format is little-endian, and data pass as they are");

constexpr const char* kMetadataKey = "__metadata__";
constexpr std::uint64_t kLengthBytes = 8;
constexpr std::uint64_t kHeaderAlignment = 8;

constexpr std::array<std::pair<DataType, std::string_view>, 3> kDataTypeNames{
    {{DataType::kF32, "F32"}, {DataType::kI32, "I32"}, {DataType::kU8, "U8"}}};

std::string_view name_of(DataType type) {
  return std::ranges::find(kDataTypeNames, type, &std::pair<DataType, std::string_view>::first)->second;
}

std::optional<DataType> data_type_from(std::string_view name) {
  const auto* const found =
      std::ranges::find(kDataTypeNames, name, &std::pair<DataType, std::string_view>::second);
  return found == kDataTypeNames.end() ? std::nullopt : std::optional(found->first);
}

// For messages: what stands in a damaged file may be long, and hold anything.
std::string printable(std::string_view text) {
  constexpr std::size_t kLongest = 80;
  const std::string shown =
      Json(text.substr(0, kLongest)).dump(-1, ' ', true, Json::error_handler_t::replace);
  return text.size() > kLongest ? shown + "..." : shown;
}

std::string shown(const Dims& dims) {
  return dims.empty() ? "of a scalar" : to_string(dims);
}

[[noreturn]] void reject(const fs::path& path, const std::string& problem) {
  throw DataError("'" + path.string() + "' is no sound safetensors file: " + problem);
}

std::string header_text(const std::vector<SafetensorsTensor>& tensors, const SafetensorsMetadata& metadata) {
  // Appended, since adding a key to a document looks through all the keys before it.
  std::string text = "{";
  std::uint64_t position = 0;
  const auto add = [&text](const std::string& key, const Json& value) {
    text += (text.size() > 1 ? "," : "") + Json(key).dump() + ":" + value.dump();
  };
  try {
    if (!metadata.empty()) {
      add(kMetadataKey, metadata);
    }
    for (const SafetensorsTensor& tensor : tensors) {
      const std::uint64_t end = checked_add(position, tensor.bytes());
      add(tensor.name,
          {{"dtype", name_of(tensor.data_type)}, {"shape", tensor.dims}, {"data_offsets", {position, end}}});
      position = end;
    }
  } catch (const Json::type_error& error) {
    throw InvalidArgument(std::string("a name or a text of a safetensors file is not UTF-8: ") +
                          error.what());
  }
  text += '}';
  // In front of the data stand the eight bytes of the length, so that the data are as aligned as the header.
  text.resize(round_up(text.size(), kHeaderAlignment), ' ');
  return text;
}

void check_tensors(const std::vector<SafetensorsTensor>& tensors) {
  std::set<std::string_view> names{kMetadataKey};
  for (const SafetensorsTensor& tensor : tensors) {
    if (!names.insert(tensor.name).second) {
      throw InvalidArgument("a safetensors file cannot have a tensor " + printable(tensor.name) +
                            (tensor.name == kMetadataKey ? ": the name is reserved" : " twice"));
    }
    if (tensor.dims.size() > kLargestSafetensorsRank) {
      throw InvalidArgument("tensor " + printable(tensor.name) + " has " +
                            std::to_string(tensor.dims.size()) + " dimensions; " +
                            std::to_string(kLargestSafetensorsRank) + " are the most");
    }
  }
}

}  // namespace

std::uint64_t SafetensorsTensor::bytes() const {
  std::uint64_t bytes = size_of(data_type);
  for (const std::int64_t dim : dims) {
    if (dim < 0) {
      throw InvalidArgument("tensor " + printable(name) + ": shape " + to_string(dims) +
                            " has a negative dimension");
    }
    bytes = checked_multiply(bytes, static_cast<std::uint64_t>(dim));
  }
  return bytes;
}

SafetensorsWriter::SafetensorsWriter(const fs::path& path, std::vector<SafetensorsTensor> tensors,
                                     const SafetensorsMetadata& metadata)
    : tensors_(std::move(tensors)) {
  check_tensors(tensors_);
  const std::string header = header_text(tensors_, metadata);
  if (header.size() > kLargestSafetensorsHeader) {
    throw InvalidArgument("'" + path.string() + "': a header of " + std::to_string(header.size()) +
                          " bytes is more than a safetensors file may have (" +
                          std::to_string(kLargestSafetensorsHeader) + ")");
  }
  file_ = std::make_unique<AtomicFile>(path);
  const std::uint64_t length = header.size();
  file_->write(std::as_bytes(std::span(&length, 1)));
  file_->write(std::as_bytes(std::span(header)));
}

SafetensorsWriter::~SafetensorsWriter() = default;

// The tensor that the next byte belongs to; nullptr when all have come.
const SafetensorsTensor* SafetensorsWriter::current() {
  while (next_ < tensors_.size() && bytes_of_current_ == tensors_[next_].bytes()) {
    ++next_;
    bytes_of_current_ = 0;
  }
  return next_ < tensors_.size() ? &tensors_[next_] : nullptr;
}

void SafetensorsWriter::write(std::span<const std::byte> bytes) {
  if (bytes.empty()) {
    return;
  }
  const SafetensorsTensor* const tensor = current();
  if (tensor == nullptr) {
    throw InvalidArgument(std::to_string(bytes.size()) + " bytes more than the safetensors file has");
  }
  const std::uint64_t missing = tensor->bytes() - bytes_of_current_;
  if (bytes.size() > missing) {
    throw InvalidArgument("tensor " + printable(tensor->name) + " is given " + std::to_string(bytes.size()) +
                          " bytes where " + std::to_string(missing) + " are missing");
  }
  file_->write(bytes);
  bytes_of_current_ += bytes.size();
}

void SafetensorsWriter::commit() {
  if (const SafetensorsTensor* const tensor = current(); tensor != nullptr) {
    throw InvalidArgument("tensor " + printable(tensor->name) + " lacks " +
                          std::to_string(tensor->bytes() - bytes_of_current_) + " of its " +
                          std::to_string(tensor->bytes()) + " bytes");
  }
  file_->commit();
}

namespace {

// Reads exactly `into`, which the file had when its size was asked.
void read_at(const fs::path& path, const FileDescriptor& file, std::uint64_t position,
             std::span<std::byte> into) {
  while (!into.empty()) {
    const ssize_t count = ::pread(file.get(), into.data(), into.size(), static_cast<off_t>(position));
    if (count < 0 && errno == EINTR) {
      continue;
    }
    if (count < 0) {
      throw DataError("'" + path.string() + "' cannot be read: " + std::generic_category().message(errno));
    }
    if (count == 0) {
      throw DataError("'" + path.string() + "' became shorter while it was read: expected " +
                      std::to_string(into.size()) + " more bytes at " + std::to_string(position) +
                      ", found the end of the file");
    }
    position += static_cast<std::uint64_t>(count);
    into = into.subspan(static_cast<std::size_t>(count));
  }
}

// A tensor as the header has it. The offsets count from the header's end.
struct Entry {
  SafetensorsTensor tensor;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

// Follows the parser event by event through the few places that the format has. Nothing is kept that is not
// expected at its place, so that neither depth nor lists without end cost anything; and keys that come twice
// are seen, of which a parsed document would only have the last.
class HeaderReader : public nlohmann::json_sax<Json> {
 public:
  explicit HeaderReader(const fs::path& path) : path_(path) {}

  SafetensorsMetadata metadata;
  std::vector<Entry> entries;

  bool start_object(std::size_t /*elements*/) override {
    switch (place_) {
      case Place::kHeader:
        return enter(Place::kNames);
      case Place::kMetadata:
        return enter(Place::kMetadataKeys);
      case Place::kTensor:
        return enter(Place::kFields);
      default:
        unexpected("an object");
    }
  }

  bool key(std::string& key) override {
    switch (place_) {
      case Place::kNames:
        return start_entry(key);
      case Place::kMetadataKeys:
        metadata_text_ = &insert_once(metadata, key, "metadata");
        return enter(Place::kMetadataText);
      default:
        return start_field(key);
    }
  }

  bool end_object() override {
    if (place_ == Place::kFields) {
      check_entry();
    }
    return enter(Place::kNames);
  }

  bool start_array(std::size_t /*elements*/) override {
    switch (place_) {
      case Place::kShape:
        return enter(Place::kDimensions);
      case Place::kOffsets:
        return enter(Place::kOffsetNumbers);
      default:
        unexpected("a list");
    }
  }

  bool end_array() override {
    if (place_ == Place::kOffsetNumbers && offsets_ != 2) {
      fail("expected 2 data_offsets, found " + std::to_string(offsets_));
    }
    return enter(Place::kFields);
  }

  bool string(std::string& text) override {
    switch (place_) {
      case Place::kMetadataText:
        *metadata_text_ = text;
        return enter(Place::kMetadataKeys);
      case Place::kDataType:
        set_data_type(text);
        return enter(Place::kFields);
      default:
        unexpected(printable(text));
    }
  }

  bool number_unsigned(std::uint64_t number) override {
    switch (place_) {
      case Place::kDimensions:
        add_dimension(number);
        return true;
      case Place::kOffsetNumbers:
        add_offset(number);
        return true;
      default:
        unexpected(std::to_string(number));
    }
  }

  bool null() override { unexpected("null"); }
  bool boolean(bool value) override { unexpected(value ? "true" : "false"); }
  bool number_integer(std::int64_t number) override { unexpected(std::to_string(number)); }
  bool number_float(double /*number*/, const std::string& text) override { unexpected(printable(text)); }
  bool binary(binary_t& /*bytes*/) override { unexpected("bytes"); }

  bool parse_error(std::size_t position, const std::string& /*token*/,
                   const nlohmann::detail::exception& /*error*/) override {
    reject(path_, "the header is not JSON at its byte " + std::to_string(position));
  }

 private:
  // What may come next.
  enum class Place : std::uint8_t {
    kHeader,
    kNames,  // of tensors, or the metadata's; also after the end of the header
    kMetadata,
    kMetadataKeys,
    kMetadataText,
    kTensor,
    kFields,
    kDataType,
    kShape,
    kDimensions,
    kOffsets,
    kOffsetNumbers,
  };

  static constexpr std::array<std::pair<std::string_view, Place>, 3> kFields{
      {{"dtype", Place::kDataType}, {"shape", Place::kShape}, {"data_offsets", Place::kOffsets}}};

  bool enter(Place place) {
    place_ = place;
    return true;
  }

  const char* expected() const {
    switch (place_) {
      case Place::kMetadataText:
        return "a text";
      case Place::kDataType:
        return "the name of a data type";
      case Place::kShape:
        return "a list of dimensions";
      case Place::kOffsets:
        return "a list of 2 offsets";
      case Place::kDimensions:
      case Place::kOffsetNumbers:
        return "a whole number from 0 on";
      default:
        return "an object";
    }
  }

  [[noreturn]] void fail(const std::string& problem) const { reject(path_, where_ + ": " + problem); }
  [[noreturn]] void unexpected(const std::string& found) const {
    fail(std::string("expected ") + expected() + ", found " + found);
  }

  std::string& insert_once(SafetensorsMetadata& texts, const std::string& key, const std::string& where) {
    where_ = where + ", key " + printable(key);
    const auto [position, inserted] = texts.try_emplace(key);
    if (!inserted) {
      fail("it is there twice");
    }
    return position->second;
  }

  bool start_entry(const std::string& name) {
    where_ = name == kMetadataKey ? "metadata" : "tensor " + printable(name);
    if (!names_.insert(name).second) {
      fail("it is there twice");
    }
    if (name == kMetadataKey) {
      return enter(Place::kMetadata);
    }
    entries.push_back({.tensor = {.name = name}});
    fields_.clear();
    offsets_ = 0;
    return enter(Place::kTensor);
  }

  bool start_field(const std::string& key) {
    const auto* const place = std::ranges::find(kFields, key, &std::pair<std::string_view, Place>::first);
    if (place == kFields.end()) {
      fail("expected dtype, shape and data_offsets, found the key " + printable(key));
    }
    if (!fields_.insert(place->second).second) {
      fail(key + " is there twice");
    }
    return enter(place->second);
  }

  void set_data_type(const std::string& name) {
    const std::optional<DataType> type = data_type_from(name);
    if (!type) {
      fail("expected a dtype that this version has (F32, I32, U8), found " + printable(name));
    }
    entries.back().tensor.data_type = *type;
  }

  void add_dimension(std::uint64_t dimension) {
    Dims& dims = entries.back().tensor.dims;
    if (dims.size() == kLargestSafetensorsRank) {
      fail("expected at most " + std::to_string(kLargestSafetensorsRank) + " dimensions, found more");
    }
    if (dimension > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
      fail("expected a dimension of 63 bits, found " + std::to_string(dimension));
    }
    dims.push_back(static_cast<std::int64_t>(dimension));
  }

  void add_offset(std::uint64_t offset) {
    if (offsets_ == 2) {
      fail("expected 2 data_offsets, found more");
    }
    (offsets_ == 0 ? entries.back().begin : entries.back().end) = offset;
    ++offsets_;
  }

  // Offsets against the shape; against the other tensors only when all are there.
  void check_entry() const {
    const Entry& entry = entries.back();
    if (fields_.size() != kFields.size()) {
      fail("expected dtype, shape and data_offsets, found " + std::to_string(fields_.size()) + " of them");
    }
    if (entry.end < entry.begin) {
      fail("data_offsets end at " + std::to_string(entry.end) + ", before they begin at " +
           std::to_string(entry.begin));
    }
    std::uint64_t bytes = 0;
    try {
      bytes = entry.tensor.bytes();
    } catch (const InvalidArgument& error) {
      fail(error.what());
    }
    if (entry.end - entry.begin != bytes) {
      fail("expected " + std::to_string(bytes) + " bytes for the shape " + shown(entry.tensor.dims) +
           " and " + std::string(name_of(entry.tensor.data_type)) + ", found data_offsets over " +
           std::to_string(entry.end - entry.begin));
    }
  }

  const fs::path& path_;
  Place place_ = Place::kHeader;
  std::string where_ = "header";
  std::set<std::string> names_;
  std::set<Place> fields_;
  std::size_t offsets_ = 0;
  std::string* metadata_text_ = nullptr;
};

// Every byte of the data belongs to exactly one tensor. Sorts the entries by place.
void check_data(const fs::path& path, std::vector<Entry>& entries, std::uint64_t data_bytes) {
  std::ranges::stable_sort(entries, {}, [](const Entry& entry) { return std::pair(entry.begin, entry.end); });
  std::uint64_t position = 0;
  for (const Entry& entry : entries) {
    if (entry.begin != position) {
      reject(path, "tensor " + printable(entry.tensor.name) + ": expected its data at " +
                       std::to_string(position) + ", where the tensor before it ends, found them at " +
                       std::to_string(entry.begin) +
                       (entry.begin < position ? " (an overlap)" : " (a hole)"));
    }
    if (entry.end > data_bytes) {
      reject(path, "tensor " + printable(entry.tensor.name) + ": expected its data to end at " +
                       std::to_string(data_bytes) + " with the file at the latest, found them to end at " +
                       std::to_string(entry.end));
    }
    position = entry.end;
  }
  if (position != data_bytes) {
    reject(path, "expected " + std::to_string(position) + " bytes of data, found " +
                     std::to_string(data_bytes - position) + " more");
  }
}

FileDescriptor open_file(const fs::path& path) {
  // Opening a pipe would wait for a writer.
  FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file.is_open()) {
    throw DataError("'" + path.string() + "' cannot be read: " + std::generic_category().message(errno));
  }
  return file;
}

std::uint64_t size_of_file(const fs::path& path, const FileDescriptor& file) {
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) {
    throw DataError("'" + path.string() + "' cannot be read: " + std::generic_category().message(errno));
  }
  if (!S_ISREG(status.st_mode)) {
    reject(path, "it is not a regular file");
  }
  return static_cast<std::uint64_t>(status.st_size);
}

std::string read_header(const fs::path& path, const FileDescriptor& file, std::uint64_t file_bytes) {
  if (file_bytes < kLengthBytes) {
    reject(path, "expected " + std::to_string(kLengthBytes) + " bytes with the header's length, found " +
                     std::to_string(file_bytes));
  }
  std::uint64_t length = 0;
  read_at(path, file, 0, std::as_writable_bytes(std::span(&length, 1)));
  const std::uint64_t most = std::min(file_bytes - kLengthBytes, kLargestSafetensorsHeader);
  if (length > most) {
    reject(path, "expected a header of at most " + std::to_string(most) + " bytes, found the length " +
                     std::to_string(length));
  }
  std::string header(length, '\0');
  read_at(path, file, kLengthBytes, std::as_writable_bytes(std::span(header)));
  if (!header.starts_with('{')) {
    reject(path, "expected a header that begins with '{', found " + printable(header.substr(0, 1)));
  }
  // The parser takes a zero for the end of its input and would pass over what follows.
  if (const std::size_t zero = header.find('\0'); zero != std::string::npos) {
    reject(path, "the header is not JSON at its byte " + std::to_string(zero));
  }
  return header;
}

}  // namespace

SafetensorsFile::SafetensorsFile(const fs::path& path)
    : path_(path), file_(std::make_unique<FileDescriptor>(open_file(path))) {
  const std::uint64_t file_bytes = size_of_file(path, *file_);
  const std::string header = read_header(path, *file_, file_bytes);
  const std::uint64_t data_begin = kLengthBytes + header.size();
  HeaderReader reader(path);
  Json::sax_parse(header, &reader);
  check_data(path, reader.entries, file_bytes - data_begin);
  metadata_ = std::move(reader.metadata);
  for (Entry& entry : reader.entries) {
    index_.emplace(entry.tensor.name, tensors_.size());
    positions_.push_back(data_begin + entry.begin);
    tensors_.push_back(std::move(entry.tensor));
  }
}

SafetensorsFile::~SafetensorsFile() = default;
SafetensorsFile::SafetensorsFile(SafetensorsFile&&) noexcept = default;
SafetensorsFile& SafetensorsFile::operator=(SafetensorsFile&&) noexcept = default;

const SafetensorsTensor* SafetensorsFile::find(std::string_view name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &tensors_[found->second];
}

void SafetensorsFile::read(std::string_view name, std::span<std::byte> into) const {
  const auto found = index_.find(name);
  if (found == index_.end()) {
    throw DataError("'" + path_.string() + "' has no tensor " + printable(name));
  }
  const std::uint64_t bytes = tensors_[found->second].bytes();
  if (into.size() != bytes) {
    throw InvalidArgument("tensor " + printable(name) + " of '" + path_.string() + "' has " +
                          std::to_string(bytes) + " bytes, the buffer for it " + std::to_string(into.size()));
  }
  read_at(path_, *file_, positions_[found->second], into);
}

}  // namespace vdnn
