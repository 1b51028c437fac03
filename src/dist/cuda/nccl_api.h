#pragma once
// The NCCL functions that the communicator calls, as an abstract class. All calls of NCCL go through this
// class, so tests can replace NCCL by a fake (tests/fakes/fake_nccl.h). This header does not include NCCL's.
//
// The functions have NCCL's names. They return errors with NCCL's numbers.

#include <cstdint>
#include <memory>
#include <string>

#include "streams/cuda/cuda_api.h"
#include "vdnn/communicator.h"
#include "vdnn/nccl_communicator.h"

namespace vdnn {

// The values of ncclResult_t that the communicator or its tests distinguish.
enum class NcclStatus : int {
  kSuccess = 0,
  kUnhandledCudaError = 1,
  kSystemError = 2,
  kInternalError = 3,
  kInvalidArgument = 4,
  kInvalidUsage = 5,
  kRemoteError = 6,
  kInProgress = 7,
};

using NcclComm = void*;  // an ncclComm_t

// Call the functions that have a parameter `comm` from one thread at a time, with that communicator's GPU
// current. These functions do not block.
class NcclApi {
 public:
  NcclApi() = default;
  virtual ~NcclApi() = default;
  NcclApi(const NcclApi&) = delete;
  NcclApi& operator=(const NcclApi&) = delete;

  virtual std::string error_string(NcclStatus status) const = 0;
  // The text of the communicator's last error; may be empty.
  virtual std::string last_error(NcclComm comm) = 0;

  virtual NcclStatus get_unique_id(NcclId& id) = 0;
  // Begins to create this rank's communicator on the calling thread's current GPU.
  virtual NcclStatus comm_init_rank(NcclComm& comm, int size, const NcclId& id, int rank) = 0;
  virtual NcclStatus comm_get_async_error(NcclComm comm, NcclStatus& status) = 0;
  virtual NcclStatus comm_finalize(NcclComm comm) = 0;
  virtual NcclStatus comm_destroy(NcclComm comm) = 0;
  // Aborts and destroys `comm`.
  virtual NcclStatus comm_abort(NcclComm comm) = 0;

  // NCCL launches the collectives between group_start() and group_end() together, in group_end().
  virtual NcclStatus group_start() = 0;
  virtual NcclStatus group_end() = 0;
  // Sums `count` elements of a floating-point type over all ranks, in place.
  virtual NcclStatus all_reduce(std::uint64_t address, std::uint64_t count, DataType type, NcclComm comm,
                                CudaStream stream) = 0;
  virtual NcclStatus broadcast(std::uint64_t address, std::uint64_t count, DataType type, int root,
                               NcclComm comm, CudaStream stream) = 0;

  // The clock for deadlines.
  virtual double now_seconds() = 0;
  // Pauses between two polls. A fake advances its clock here.
  virtual void rest() = 0;
};

// Loads NCCL. Throws DeviceError if NCCL is missing or too old, and if NCCL_COMM_BLOCKING is 1 in the
// environment.
std::unique_ptr<NcclApi> make_nccl_api();

}  // namespace vdnn
