#pragma once
// Scalars of a training run for TensorBoard, written as an event file.
//
// The file is a sequence of TFRecords: the length of the data (8 bytes), a masked CRC-32C of the length, the
// data, a masked CRC-32C of the data; numbers are little-endian. The data is an Event of TensorFlow's
// event.proto, of which a writer of scalars needs a few fields; they are encoded here. The first event names
// the version, "brain.Event:2". The second one starts a session at a step. Readers then drop events from that
// step on in earlier files of the folder. An interrupted run wrote such events after its last checkpoint.

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <span>
#include <string>
#include <string_view>

namespace vdnn {

struct ScalarEvent {
  std::string_view tag;
  double value = 0;  // written as float
};

// The CRC of iSCSI (polynomial 0x1EDC6F41, reflected), masked as in TFRecords: rotated right by 15 bits, plus
// a constant.
std::uint32_t crc32c(std::string_view data);
std::uint32_t masked_crc32c(std::string_view data);

// Makes the folder and its parents if they do not exist. Throws InvalidArgument, which names the folder and
// the reason, if no file can be made in it.
void check_event_folder(const std::filesystem::path& folder);

// Belongs to one thread.
class EventFile {
 public:
  // Makes a new file in `folder`, named by time, host and process as TensorBoard expects. `first_step`: the
  // first step of the run that writes it. `now_seconds`: seconds since the Unix epoch; empty: the system's
  // clock. Throws InvalidArgument as check_event_folder() does, DataError if writing fails.
  EventFile(const std::filesystem::path& folder, std::uint64_t first_step,
            std::function<double()> now_seconds = {});

  // Writes one event with these scalars. A reader that follows the file sees whole events. Throws DataError
  // if writing fails.
  void add(std::uint64_t step, std::span<const ScalarEvent> scalars);

  const std::filesystem::path& path() const { return path_; }

 private:
  void write_record(const std::string& data);

  std::function<double()> now_seconds_;
  std::filesystem::path path_;
  std::ofstream file_;
};

}  // namespace vdnn
