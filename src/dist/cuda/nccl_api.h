#pragma once
// The calls of NCCL that the communicator makes, as one table, as CudaApi is for CUDA's. All calls go through
// it, so that a fake can stand in (tests/fakes/fake_nccl.h), and NCCL's headers are not visible here.
//
// Functions are named after NCCL's; errors are returned as NCCL numbers them.

#include <cstdint>
#include <memory>
#include <string>

#include "streams/cuda/cuda_api.h"
#include "vdnn/communicator.h"
#include "vdnn/nccl_communicator.h"

namespace vdnn {

// The values that the communicator or tests distinguish.
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

// One thread at a time calls the functions with a communicator, with the communicator's GPU current.
class NcclApi {
 public:
  NcclApi() = default;
  virtual ~NcclApi() = default;
  NcclApi(const NcclApi&) = delete;
  NcclApi& operator=(const NcclApi&) = delete;

  virtual std::string error_string(NcclStatus status) const = 0;
  // The text of the last error; may be empty.
  virtual std::string last_error(NcclComm comm) = 0;

  virtual NcclStatus get_unique_id(NcclId& id) = 0;
  // Joins with the calling thread's current GPU. Non-blocking, like every function with `comm`.
  virtual NcclStatus comm_init_rank(NcclComm& comm, int size, const NcclId& id, int rank) = 0;
  virtual NcclStatus comm_get_async_error(NcclComm comm, NcclStatus& status) = 0;
  virtual NcclStatus comm_finalize(NcclComm comm) = 0;
  virtual NcclStatus comm_destroy(NcclComm comm) = 0;
  // Aborts and destroys `comm`.
  virtual NcclStatus comm_abort(NcclComm comm) = 0;

  // NCCL launches the calls between these two together, at the end.
  virtual NcclStatus group_start() = 0;
  virtual NcclStatus group_end() = 0;
  // The sum over all ranks, in place, of `count` elements of a floating-point type.
  virtual NcclStatus all_reduce(std::uint64_t address, std::uint64_t count, DataType type, NcclComm comm,
                                CudaStream stream) = 0;
  virtual NcclStatus broadcast(std::uint64_t address, std::uint64_t count, DataType type, int root,
                               NcclComm comm, CudaStream stream) = 0;

  // The clock and the pause between polls; a fake advances its clock in rest().
  virtual double now_seconds() = 0;
  virtual void rest() = 0;
};

// NCCL itself. Throws DeviceError if it is missing or too old, and if NCCL_COMM_BLOCKING is 1 in the
// environment.
std::unique_ptr<NcclApi> make_nccl_api();

}  // namespace vdnn
