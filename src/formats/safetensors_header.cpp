#include "src/formats/safetensors_header.h"

#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "src/formats/flat_json.h"
#include "vdnn/error.h"
#include "vdnn/size.h"

namespace vdnn {

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr const char* kMetadataKey = "__metadata__";
constexpr std::uint64_t kHeaderAlignment = 8;

constexpr std::array<std::pair<DataType, std::string_view>, 5> kDataTypeNames{{{DataType::kF32, "F32"},
                                                                               {DataType::kI32, "I32"},
                                                                               {DataType::kU8, "U8"},
                                                                               {DataType::kF16, "F16"},
                                                                               {DataType::kBf16, "BF16"}}};

std::optional<DataType> data_type_from(std::string_view name) {
  const auto* const found =
      std::ranges::find(kDataTypeNames, name, &std::pair<DataType, std::string_view>::second);
  return found == kDataTypeNames.end() ? std::nullopt : std::optional(found->first);
}

std::string shown(const Dims& dims) {
  return dims.empty() ? "of a scalar" : to_string(dims);
}

template <class Number>
std::string list_text(const std::vector<Number>& numbers) {
  std::string text;
  for (const Number number : numbers) {
    text += (text.empty() ? "[" : ",") + std::to_string(number);
  }
  return text.empty() ? "[]" : text + "]";
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
                            std::to_string(tensor.dims.size()) + " dimensions; at most " +
                            std::to_string(kLargestSafetensorsRank) + " are allowed");
    }
  }
}

}  // namespace

std::string_view name_of(DataType type) {
  const auto* const found =
      std::ranges::find(kDataTypeNames, type, &std::pair<DataType, std::string_view>::first);
  if (found == kDataTypeNames.end()) {
    throw InvalidArgument("safetensors files are written with F32, F16, BF16, I32 and U8 only");
  }
  return found->second;
}

// Texts from a damaged file may be long and contain any byte.
std::string printable(std::string_view text) {
  constexpr std::size_t kLongest = 80;
  const Json beginning = text.substr(0, kLongest);
  return beginning.dump(-1, ' ', true, Json::error_handler_t::replace) +
         (text.size() > kLongest ? "..." : "");
}

void reject_safetensors(const fs::path& path, const std::string& problem) {
  throw DataError("'" + path.string() + "' is not a valid safetensors file: " + problem);
}

std::string safetensors_header(const std::vector<SafetensorsTensor>& tensors,
                               const SafetensorsMetadata& metadata) {
  check_tensors(tensors);
  // Writes text directly, since nlohmann::json would search all earlier keys for each new one.
  std::string text = "{";
  std::uint64_t position = 0;
  const auto add = [&text](const std::string& key, const std::string& value) {
    text += (text.size() > 1 ? "," : "") + json_text(key) + ":" + value;
  };
  try {
    if (!metadata.empty()) {
      add(kMetadataKey, write_flat_json({metadata.begin(), metadata.end()}));
    }
    for (const SafetensorsTensor& tensor : tensors) {
      const std::uint64_t end = checked_add(position, tensor.bytes());
      add(tensor.name, "{\"dtype\":" + json_text(std::string(name_of(tensor.data_type))) +
                           ",\"shape\":" + list_text(tensor.dims) +
                           ",\"data_offsets\":" + list_text(std::vector<std::uint64_t>{position, end}) + "}");
      position = end;
    }
  } catch (const nlohmann::detail::type_error& error) {
    throw InvalidArgument(std::string("a name or a text of a safetensors file is not UTF-8: ") +
                          error.what());
  }
  text += '}';
  // Eight bytes with the header's length precede the header. So a header whose size is a multiple of eight
  // aligns the data.
  text.resize(round_up(text.size(), kHeaderAlignment), ' ');
  if (text.size() > kLargestSafetensorsHeader) {
    throw InvalidArgument("a header of " + std::to_string(text.size()) +
                          " bytes is more than a safetensors file may have (" +
                          std::to_string(kLargestSafetensorsHeader) + ")");
  }
  return text;
}

namespace {

using Entry = SafetensorsHeader::Entry;

// Receives the parser's events and tracks the place in the format. It stores only expected elements, so
// neither deep nor endless lists cost memory. It also rejects keys that appear twice; a parsed document would
// keep only the last value of such a key.
class HeaderReader : public nlohmann::json_sax<Json> {
 public:
  explicit HeaderReader(const fs::path& path) : path_(path) {}

  SafetensorsHeader header;

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
        metadata_text_ = &insert_once(header.metadata, key, "metadata");
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
    reject_safetensors(path_, "the header is not JSON at its byte " + std::to_string(position));
  }

 private:
  // The element that the parser expects next.
  enum class Place : std::uint8_t {
    kHeader,
    kNames,  // the name of a tensor or the metadata's key; also the place after the header's end
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

  [[noreturn]] void fail(const std::string& problem) const {
    reject_safetensors(path_, where_ + ": " + problem);
  }
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
    header.entries.push_back({.tensor = {.name = name}});
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
      fail("expected a dtype that this version has (F32, F16, BF16, I32, U8), found " + printable(name));
    }
    header.entries.back().tensor.data_type = *type;
  }

  void add_dimension(std::uint64_t dimension) {
    Dims& dims = header.entries.back().tensor.dims;
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
    (offsets_ == 0 ? header.entries.back().begin : header.entries.back().end) = offset;
    ++offsets_;
  }

  // Checks offsets against the shape; check_data() compares tensors with each other.
  void check_entry() const {
    const Entry& entry = header.entries.back();
    for (const auto& [field, place] : kFields) {
      if (!fields_.contains(place)) {
        fail("it lacks " + std::string(field));
      }
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

// Checks that every byte of the data belongs to exactly one tensor. Sorts the entries by position.
void check_data(const fs::path& path, std::vector<Entry>& entries, std::uint64_t data_bytes) {
  std::ranges::stable_sort(entries, {}, [](const Entry& entry) { return std::pair(entry.begin, entry.end); });
  std::uint64_t position = 0;
  for (const Entry& entry : entries) {
    if (entry.begin != position) {
      reject_safetensors(
          path, "tensor " + printable(entry.tensor.name) + ": expected its data at " +
                    std::to_string(position) + ", where the tensor before it ends, found them at " +
                    std::to_string(entry.begin) + (entry.begin < position ? " (an overlap)" : " (a hole)"));
    }
    if (entry.end > data_bytes) {
      reject_safetensors(path, "tensor " + printable(entry.tensor.name) + ": expected its data to end at " +
                                   std::to_string(data_bytes) +
                                   " with the file at the latest, found them to end at " +
                                   std::to_string(entry.end));
    }
    position = entry.end;
  }
  if (position != data_bytes) {
    reject_safetensors(path, "expected " + std::to_string(position) + " bytes of data, found " +
                                 std::to_string(data_bytes - position) + " more");
  }
}

}  // namespace

SafetensorsHeader parse_safetensors_header(const fs::path& path, const std::string& text,
                                           std::uint64_t data_bytes) {
  if (!text.starts_with('{')) {
    reject_safetensors(path, "expected a header that begins with '{', found " + printable(text.substr(0, 1)));
  }
  // The parser ends its input at a zero byte and would ignore the bytes after it.
  if (const std::size_t zero = text.find('\0'); zero != std::string::npos) {
    reject_safetensors(path, "the header is not JSON at its byte " + std::to_string(zero));
  }
  HeaderReader reader(path);
  Json::sax_parse(text, &reader);
  check_data(path, reader.header.entries, data_bytes);
  return std::move(reader.header);
}

}  // namespace vdnn
