#pragma once
// safetensors (https://github.com/huggingface/safetensors, the format's own page), the file format of
// checkpoints: eight bytes N (little-endian), N bytes of JSON that name each tensor's data type, shape and
// place, then the data without holes. It holds nothing executable, and Python reads it with one call.
//
// A file is written as a stream: the header needs names and shapes only, and then the data follow in pieces
// of any size. So a checkpoint of gigabytes needs no second copy in memory. A file is read tensor by tensor,
// after the whole header was checked: *a false header is never trusted*. Reading any file either throws
// DataError or finds tensors inside the file, with each byte of data in exactly one of them. The memory
// needed is proportional to the header.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "vdnn/tensor.h"

namespace vdnn {

class AtomicFile;
class FileDescriptor;

struct SafetensorsTensor {
  std::string name;  // UTF-8; may be empty
  DataType data_type = DataType::kF32;
  // Outermost first, C order. Empty for a scalar; dimensions of 0 are fine, and so is a tensor without data.
  Dims dims;

  // The size of the data. Throws InvalidArgument on a negative dimension and on overflow of 64 bits.
  std::uint64_t bytes() const;
  friend bool operator==(const SafetensorsTensor&, const SafetensorsTensor&) = default;
};

using SafetensorsMetadata = std::map<std::string, std::string>;

// The largest header that the reference implementation accepts, in bytes.
constexpr std::uint64_t kLargestSafetensorsHeader = 100'000'000;
// The most dimensions, as in NumPy.
constexpr std::size_t kLargestSafetensorsRank = 64;

// Writes one file. Only commit() replaces the previous file (see atomic_file.h), so the previous checkpoint
// survives a failure at any point. Belongs to one thread.
class SafetensorsWriter {
 public:
  // Writes the header. The data follow in the order of `tensors`; all of them are aligned if each tensor is a
  // multiple of four bytes, or tensors of single bytes come last. Throws InvalidArgument if two tensors share
  // a name, one is called `__metadata__`, a text is not UTF-8, a size overflows, a rank exceeds
  // kLargestSafetensorsRank or the header exceeds kLargestSafetensorsHeader. Throws DataError if the file
  // cannot be written.
  SafetensorsWriter(const std::filesystem::path& path, std::vector<SafetensorsTensor> tensors,
                    const SafetensorsMetadata& metadata = {});
  ~SafetensorsWriter();
  SafetensorsWriter(const SafetensorsWriter&) = delete;
  SafetensorsWriter& operator=(const SafetensorsWriter&) = delete;

  // Writes the next bytes of the data. A tensor may come in any number of pieces. Throws InvalidArgument for
  // a piece that runs past its tensor's end, before any of it is written, and DataError if the write fails.
  void write(std::span<const std::byte> bytes);
  // Puts the file in place, durably. Throws InvalidArgument if data are missing, DataError if the file cannot
  // be written. Without a commit the file is dropped.
  void commit();

 private:
  const SafetensorsTensor* current();

  std::vector<SafetensorsTensor> tensors_;
  std::size_t next_ = 0;                // the tensor that is being written
  std::uint64_t bytes_of_current_ = 0;  // bytes of that tensor written so far
  std::unique_ptr<AtomicFile> file_;
};

// An open file with a valid header. May be shared by threads.
class SafetensorsFile {
 public:
  // Reads and checks the header, none of the data. Throws DataError, which names the file, the tensor, what
  // was expected and what was found, for
  //
  //  * a file that cannot be read or is not regular;
  //  * a header longer than kLargestSafetensorsHeader or the file;
  //  * anything but JSON of exactly the format's form, or a key that appears twice;
  //  * data types other than F32, F16, BF16, I32 and U8;
  //  * shapes that are negative, overflow, exceed kLargestSafetensorsRank dimensions or do not fit their
  //    offsets;
  //  * data that overlap, leave holes, or do not end with the file.
  explicit SafetensorsFile(const std::filesystem::path& path);
  ~SafetensorsFile();
  SafetensorsFile(SafetensorsFile&&) noexcept;
  SafetensorsFile& operator=(SafetensorsFile&&) noexcept;

  const SafetensorsMetadata& metadata() const { return metadata_; }
  // The tensors, in the order of their data.
  const std::vector<SafetensorsTensor>& tensors() const { return tensors_; }
  // nullptr if no tensor has that name. The pointer is valid until this object is destroyed.
  const SafetensorsTensor* find(std::string_view name) const;

  // Reads a whole tensor. Throws DataError if the file has no tensor of that name, cannot be read, or has
  // become shorter since it was opened. Throws InvalidArgument unless `into` has exactly the tensor's bytes.
  void read(std::string_view name, std::span<std::byte> into) const;

 private:
  std::filesystem::path path_;
  SafetensorsMetadata metadata_;
  std::vector<SafetensorsTensor> tensors_;
  std::vector<std::uint64_t> positions_;  // of each tensor in the file
  std::map<std::string, std::size_t, std::less<>> index_;
  std::unique_ptr<FileDescriptor> file_;
};

}  // namespace vdnn
