#include "vdnn/safetensors.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <system_error>
#include <utility>

#include "src/base/atomic_file.h"
#include "src/base/file_descriptor.h"
#include "src/formats/safetensors_header.h"
#include "vdnn/error.h"
#include "vdnn/size.h"

namespace vdnn {

namespace {

namespace fs = std::filesystem;

static_assert(std::endian::native == std::endian::little,
              "the format is little-endian, and data are written as they are in memory");

constexpr std::uint64_t kLengthBytes = 8;

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
  const std::string header = safetensors_header(tensors_, metadata);
  const std::uint64_t length = header.size();
  std::uint64_t bytes = kLengthBytes + length;
  for (const SafetensorsTensor& tensor : tensors_) {
    bytes = checked_add(bytes, tensor.bytes());
  }
  file_ = std::make_unique<AtomicFile>(path, bytes);
  file_->write(std::as_bytes(std::span(&length, 1)));
  file_->write(std::as_bytes(std::span(header)));
}

SafetensorsWriter::~SafetensorsWriter() = default;

// The tensor to which the next byte belongs; nullptr if all tensors are complete.
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

// Reads exactly `into.size()` bytes. Throws if the file has become shorter since it was opened.
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

FileDescriptor open_file(const fs::path& path) {
  // Without O_NONBLOCK, opening a pipe would wait for a writer.
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
    reject_safetensors(path, "it is not a regular file");
  }
  return static_cast<std::uint64_t>(status.st_size);
}

std::string read_header(const fs::path& path, const FileDescriptor& file, std::uint64_t file_bytes) {
  if (file_bytes < kLengthBytes) {
    reject_safetensors(path, "expected " + std::to_string(kLengthBytes) +
                                 " bytes with the header's length, found " + std::to_string(file_bytes));
  }
  std::uint64_t length = 0;
  read_at(path, file, 0, std::as_writable_bytes(std::span(&length, 1)));
  const std::uint64_t most = std::min(file_bytes - kLengthBytes, kLargestSafetensorsHeader);
  if (length > most) {
    reject_safetensors(path, "expected a header of at most " + std::to_string(most) +
                                 " bytes, found the length " + std::to_string(length));
  }
  std::string header(length, '\0');
  read_at(path, file, kLengthBytes, std::as_writable_bytes(std::span(header)));
  return header;
}

}  // namespace

SafetensorsFile::SafetensorsFile(const fs::path& path)
    : path_(path), file_(std::make_unique<FileDescriptor>(open_file(path))) {
  const std::uint64_t file_bytes = size_of_file(path, *file_);
  const std::string text = read_header(path, *file_, file_bytes);
  const std::uint64_t data_begin = kLengthBytes + text.size();
  SafetensorsHeader header = parse_safetensors_header(path, text, file_bytes - data_begin);
  metadata_ = std::move(header.metadata);
  for (SafetensorsHeader::Entry& entry : header.entries) {
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
