#pragma once
// Physical memory separate from addresses, for the backend of a pool (vdnn/pool_backend.h), with CUDA's
// virtual memory management. Granules are physical allocations, which may be mapped at several addresses at
// the same time. CUDA does not free a granule as long as its handle or a mapping of it exists.
//
// Work that writes at one address and work that reads the same memory at another one must be ordered, for
// example by streams and events. Within one kernel, accesses by the two addresses are not coherent (CUDA
// programming guide, virtual aliasing support).
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

// Thread-safe. The caller holds a CudaContext::Scope.
class CudaGranules {
 public:
  // Granules of the GPU that `info` describes. Work of that GPU and of the GPUs `peers` may access them.
  CudaGranules(CudaContext& context, std::uint64_t granule_bytes, const CudaDeviceInfo& info,
               std::span<const int> peers);
  // Releases all memory that is still mapped or reserved, for example after CUDA refused to release it.
  // Reservations passed to leave() are exempt. No work may be in flight on the released memory.
  ~CudaGranules();
  CudaGranules(const CudaGranules&) = delete;
  CudaGranules& operator=(const CudaGranules&) = delete;

  AddressRange reserve(std::uint64_t bytes);
  void unreserve(AddressRange reservation);
  std::uint64_t create();
  void destroy(std::uint64_t granule);
  void map(AddressRange range, std::span<const std::uint64_t> granules);
  void unmap(AddressRange range);
  // Leaves the reservation mapped until give_back_left(), or until the process ends.
  void leave(AddressRange reservation) noexcept;
  // The number of the last reservation that was left; 0 if there is none.
  std::uint64_t last_left() const { return last_left_; }
  // Gives back the reservations that were left, up to number `last`; no work may use them any more. If CUDA
  // refuses to release one, the next call tries again.
  void give_back_left(std::uint64_t last) noexcept;

 private:
  struct Reservation {
    AddressRange range;
    std::vector<bool> mapped;  // by granule
    std::uint64_t left = 0;    // the reservation's number, if it was left; 0: in use
  };

  CudaStatus give_back(AddressRange reservation);
  // Gives back as much of the reservation as CUDA accepts. Returns whether that was all of it.
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
  std::vector<int> users_;                             // ordinals: that of the GPU itself, and the peers'
  std::atomic<std::uint64_t> last_left_{0};            // changed with the lock
  std::mutex mutex_;                                   // guards the members below
  std::map<std::uint64_t, Reservation> reservations_;  // by begin
  // Addresses of granules that a failed call of map() could not unmap again.
  std::vector<std::uint64_t> strays_;
};

}  // namespace vdnn
