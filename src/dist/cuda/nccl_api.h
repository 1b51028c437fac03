#pragma once
// The calls of NCCL that the communicator makes, as one table: the only way to them, as CudaApi is to CUDA's.
// A fake can stand in (tests/fakes/fake_nccl.h), and nothing of NCCL's headers shows.
//
// Functions are named after NCCL's; errors are returned as NCCL numbers them.

#include <cstdint>
#include <memory>
#include <string>

#include "streams/cuda/cuda_api.h"
#include "vdnn/communicator.h"
#include "vdnn/nccl_communicator.h"

namespace vdnn {

// Those that something here depends on or tests ask for.
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

// Functions that take a communicator are called by one thread at a time, with its GPU set.
class NcclApi {
 public:
  NcclApi() = default;
  virtual ~NcclApi() = default;
  NcclApi(const NcclApi&) = delete;
  NcclApi& operator=(const NcclApi&) = delete;

  virtual std::string error_string(NcclStatus status) const = 0;
  // Of what failed last, in words; may be empty.
  virtual std::string last_error(NcclComm comm) = 0;

  virtual NcclStatus get_unique_id(NcclId& id) = 0;
  // Non-blocking, and so is every function that takes `comm`. Of the calling thread's GPU.
  virtual NcclStatus comm_init_rank(NcclComm& comm, int size, const NcclId& id, int rank) = 0;
  virtual NcclStatus comm_get_async_error(NcclComm comm, NcclStatus& status) = 0;
  virtual NcclStatus comm_finalize(NcclComm comm) = 0;
  virtual NcclStatus comm_destroy(NcclComm comm) = 0;
  // Also gives `comm` back.
  virtual NcclStatus comm_abort(NcclComm comm) = 0;

  // What is called between them is launched as one, at the end.
  virtual NcclStatus group_start() = 0;
  virtual NcclStatus group_end() = 0;
  // In place, of `count` elements of the type, a floating-point one.
  virtual NcclStatus all_reduce(std::uint64_t address, std::uint64_t count, DataType type,
                                Reduction reduction, NcclComm comm, CudaStream stream) = 0;
  virtual NcclStatus broadcast(std::uint64_t address, std::uint64_t count, DataType type, int root,
                               NcclComm comm, CudaStream stream) = 0;

  // How whoever polls passes the time, so that a fake's passes as its ranks do.
  virtual double now_seconds() = 0;
  virtual void rest() = 0;
};

// NCCL itself. Throws DeviceError where it is missing or too old, and where NCCL_COMM_BLOCKING is 1 in the
// environment.
std::unique_ptr<NcclApi> make_nccl_api();

}  // namespace vdnn
