#pragma once
// A storage at one version, for as long as a handle of it is alive.

#include <cstdint>

#include "src/stash/host_blocks.h"
#include "src/stash/stash_event.h"
#include "vdnn/tensor_stash.h"

namespace vdnn::stash {

enum class Where : std::uint8_t {
  kKept,      // on the device
  kInFlight,  // likewise, and being copied out
  kAway,      // on the host alone
  kFetched,   // and in a target
};

struct StashedTensor {
  SavedTensor saved;
  std::uint64_t stream_id = 0;  // of saved.stream: a handle may be another stream's later
  std::uint64_t step = 0;       // serial number
  std::uint32_t index = 0;      // in the step
  std::uint64_t users = 1;      // puts that were not dropped
  std::uint64_t unread = 1;     // of them, in the current pass
  std::uint64_t reads = 0;      // ever
  Where where = Where::kKept;
  // The part of each class that counts or lists tensors.
  bool is_counted_away = false;     // BytesOnDevice
  bool is_counted_ahead = false;    // BytesOnDevice
  bool is_named = false;            // FetchWindow has named it, and it was not fetched since
  std::uint64_t sent_at = 0;        // CopiesInFlight: what had been saved before its copy began
  bool is_released_at_put = false;  // and the caller has not said otherwise
  bool is_held = false;             // by others than the caller, who tells when they let go
  // A reader waits for its fetch.
  bool is_missing = false;
  bool ends_with_ready = false;  // that reader is the last of its pass
  // Its copies.
  HostBlocks::Lease block;
  StashEvent out;
  std::uint64_t out_number = 0;  // in the order of all copies out
  StashEvent in;                 // of the last fetch
  StreamHandle target_stream = nullptr;
  std::uint64_t target_stream_id = 0;
  bool has_target_joined = false;  // target_stream comes after the fetch
  // How many events its step had when the last target was let go of, since a pass over the graph had ended;
  // 0: none was, or that is known to the stash alone.
  std::size_t let_go_after = 0;

  std::uint64_t bytes() const { return saved.source.bytes; }
};

}  // namespace vdnn::stash
