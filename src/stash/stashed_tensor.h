#pragma once
// A storage at one version that has a live handle.

#include <cstdint>

#include "src/stash/host_blocks.h"
#include "src/stash/stash_event.h"
#include "vdnn/tensor_stash.h"

namespace vdnn::stash {

enum class Where : std::uint8_t {
  kKept,      // on the device
  kInFlight,  // on the device, and being copied out
  kAway,      // only on the host
  kFetched,   // on the host and in a target
};

struct StashedTensor {
  SavedTensor saved;
  std::uint64_t stream_id = 0;  // of saved.stream; another stream may get that handle later
  std::uint64_t step = 0;       // serial number
  std::uint32_t index = 0;      // number of the tensor in the step
  std::uint64_t users = 1;      // puts that have not been dropped
  std::uint64_t unread = 1;     // users that have not read the tensor in this pass
  std::uint64_t reads = 0;      // number of reads in all passes
  Where where = Where::kKept;
  // State of the classes that count or list tensors.
  bool is_counted_away = false;     // BytesOnDevice
  bool is_counted_ahead = false;    // BytesOnDevice
  bool is_listed = false;           // FetchWindow: listed for a fetch that has not begun
  std::uint64_t sent_at = 0;        // CopiesInFlight: bytes saved before its copy began
  bool is_released_at_put = false;  // false again after hold()
  bool is_held = false;             // by others than the caller, as note_held() last reported
  // Whether a reader waits for the fetch.
  bool is_missing = false;
  bool ends_with_ready = false;  // whether that reader is the last of its pass
  // The tensor's copies.
  HostBlocks::Lease block;
  StashEvent out;
  std::uint64_t out_number = 0;  // position in the order of all copies out
  StashEvent in;                 // of the last fetch
  StreamHandle target_stream = nullptr;
  std::uint64_t target_stream_id = 0;
  bool has_target_joined = false;  // whether target_stream is ordered after the fetch
  // The number of events of its step when the last target was released at the end of a pass. 0: no target
  // was released, or the caller did not report the bytes in use.
  std::size_t let_go_after = 0;

  std::uint64_t bytes() const { return saved.source.bytes; }
};

}  // namespace vdnn::stash
