#pragma once
// Memory apart from addresses, for the backend of a pool (vdnn/pool_backend.h), by CUDA's virtual memory
// management: granules are physical allocations, which may be mapped at several places at once. CUDA keeps
// such memory as long as its handle or a mapping exists.
//
// Work that writes at one address and work that reads the same memory at another one must be ordered, for
// example by streams and events. Within one kernel the two are not coherent (CUDA programming guide, virtual
// aliasing support).
//
// Each mapping grants access to the GPU itself and to peers, since cudaDeviceEnablePeerAccess() does not
// cover virtual memory.
//
// On a GPU without virtual memory management, a reservation is memory in one piece, and granules are only
// counted.

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <span>
#include <vector>

#include "streams/cuda/cuda_context.h"
#include "vdnn/address_range.h"

namespace vdnn {

// Thread-safe. Calls are made within a scope of the context.
class CudaGranules {
 public:
  // Of the GPU that `info` describes, for work of the GPU itself and of those that `peers` names.
  CudaGranules(CudaContext& context, std::uint64_t granule_bytes, const CudaDeviceInfo& info,
               std::span<const int> peers);
  // Releases all memory that is still mapped or reserved, for example after CUDA refused to release it,
  // except memory that was left. No work may be in flight there.
  ~CudaGranules();
  CudaGranules(const CudaGranules&) = delete;
  CudaGranules& operator=(const CudaGranules&) = delete;

  AddressRange reserve(std::uint64_t bytes);
  void unreserve(AddressRange reservation);
  std::uint64_t create();
  void destroy(std::uint64_t granule);
  void map(AddressRange range, std::span<const std::uint64_t> granules);
  void unmap(AddressRange range);
  // The reservation stays as it is until give_back_left(), or for good.
  void leave(AddressRange reservation) noexcept;
  // The number of the last one that was left; 0: none.
  std::uint64_t last_left() const { return last_left_; }
  // Those that were left up to the one of that number, which no work uses any more. What CUDA refuses is
  // tried again the next time.
  void give_back_left(std::uint64_t last) noexcept;

 private:
  struct Reservation {
    AddressRange range;
    std::vector<bool> mapped;  // by granule
    std::uint64_t left = 0;    // a number of those that were left; 0: it is in use
  };

  CudaStatus give_back(AddressRange reservation);
  // Gives back as much as CUDA accepts. True: all of it.
  bool give_back_all(Reservation& reservation) noexcept;
  Reservation& reservation_of(AddressRange range);
  std::vector<bool>::reference mapped_at(Reservation& reservation, std::uint64_t address) const;
  CudaStatus unmap_one(Reservation& reservation, std::uint64_t address);
  void unmap_strays();
  MemoryShortage shortage(std::uint64_t asked) const;

  CudaContext& context_;
  const std::uint64_t granule_bytes_;
  const bool virtual_memory_;
  const CudaMemoryKind kind_;
  std::vector<int> users_;                             // ordinals: its own GPU's, and the peers'
  std::atomic<std::uint64_t> last_left_{0};            // changed with the lock
  std::mutex mutex_;                                   // guards what follows
  std::map<std::uint64_t, Reservation> reservations_;  // by begin
  // Granules that a call of map() which failed could not unmap again.
  std::vector<std::uint64_t> strays_;
};

}  // namespace vdnn
