#include "src/dist/cuda/nccl_api.h"

#include <nccl.h>

#include <chrono>
#include <cstring>
#include <thread>

#include "src/base/environment.h"
#include "streams/cuda/loaded_library.h"

namespace vdnn {

namespace {

template <NcclStatus ours, ncclResult_t theirs>
constexpr bool kSame = static_cast<int>(ours) == static_cast<int>(theirs);
static_assert(kSame<NcclStatus::kSuccess, ncclSuccess>);
static_assert(kSame<NcclStatus::kUnhandledCudaError, ncclUnhandledCudaError>);
static_assert(kSame<NcclStatus::kSystemError, ncclSystemError>);
static_assert(kSame<NcclStatus::kInternalError, ncclInternalError>);
static_assert(kSame<NcclStatus::kInvalidArgument, ncclInvalidArgument>);
static_assert(kSame<NcclStatus::kInvalidUsage, ncclInvalidUsage>);
static_assert(kSame<NcclStatus::kRemoteError, ncclRemoteError>);
static_assert(kSame<NcclStatus::kInProgress, ncclInProgress>);
static_assert(sizeof(NcclId) == sizeof(ncclUniqueId));

NcclStatus status(ncclResult_t result) {
  return static_cast<NcclStatus>(result);
}

ncclComm_t native(NcclComm comm) {
  return static_cast<ncclComm_t>(comm);
}

ncclDataType_t native(DataType type) {
  switch (type) {
    case DataType::kF16:
      return ncclFloat16;
    case DataType::kBf16:
      return ncclBfloat16;
    default:
      return ncclFloat32;
  }
}

std::string format_version(int version) {
  return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100);
}

// NOLINTNEXTLINE(bugprone-macro-parentheses): a declaration's name
#define VDNN_FUNCTION(name) decltype(&::name) name = library.find<decltype(&::name)>(#name)

struct Nccl {
  cuda::LoadedLibrary library{"libnccl.so." + std::to_string(NCCL_MAJOR)};
  VDNN_FUNCTION(ncclGetVersion);
  VDNN_FUNCTION(ncclGetErrorString);
  VDNN_FUNCTION(ncclGetLastError);
  VDNN_FUNCTION(ncclGetUniqueId);
  VDNN_FUNCTION(ncclCommInitRankConfig);
  VDNN_FUNCTION(ncclCommGetAsyncError);
  VDNN_FUNCTION(ncclCommFinalize);
  VDNN_FUNCTION(ncclCommDestroy);
  VDNN_FUNCTION(ncclCommAbort);
  VDNN_FUNCTION(ncclGroupStart);
  VDNN_FUNCTION(ncclGroupEnd);
  VDNN_FUNCTION(ncclAllReduce);
  VDNN_FUNCTION(ncclBroadcast);
};

#undef VDNN_FUNCTION

class RealNcclApi final : public NcclApi {
 public:
  RealNcclApi() {
    int version = 0;
    nccl_.ncclGetVersion(&version);
    // An older release of NCCL does not know this build's ncclConfig_t.
    constexpr int kMinor = NCCL_VERSION_CODE / 100 * 100;
    if (version < kMinor) {
      throw DeviceError("NCCL is too old: the library is " + format_version(version) + ", this build for " +
                        format_version(kMinor));
    }
  }

  std::string error_string(NcclStatus error) const override {
    return nccl_.ncclGetErrorString(static_cast<ncclResult_t>(error));
  }
  std::string last_error(NcclComm comm) override { return nccl_.ncclGetLastError(native(comm)); }

  NcclStatus get_unique_id(NcclId& id) override {
    ncclUniqueId made;
    const NcclStatus result = status(nccl_.ncclGetUniqueId(&made));
    std::memcpy(id.data(), made.internal, id.size());
    return result;
  }
  NcclStatus comm_init_rank(NcclComm& comm, int size, const NcclId& id, int rank) override {
    ncclUniqueId theirs;
    std::memcpy(theirs.internal, id.data(), id.size());
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    ncclComm_t made = nullptr;
    const NcclStatus result = status(nccl_.ncclCommInitRankConfig(&made, size, theirs, rank, &config));
    comm = made;
    return result;
  }
  NcclStatus comm_get_async_error(NcclComm comm, NcclStatus& error) override {
    ncclResult_t found = ncclSuccess;
    const NcclStatus result = status(nccl_.ncclCommGetAsyncError(native(comm), &found));
    error = status(found);
    return result;
  }
  NcclStatus comm_finalize(NcclComm comm) override { return status(nccl_.ncclCommFinalize(native(comm))); }
  NcclStatus comm_destroy(NcclComm comm) override { return status(nccl_.ncclCommDestroy(native(comm))); }
  NcclStatus comm_abort(NcclComm comm) override { return status(nccl_.ncclCommAbort(native(comm))); }

  NcclStatus group_start() override { return status(nccl_.ncclGroupStart()); }
  NcclStatus group_end() override { return status(nccl_.ncclGroupEnd()); }
  NcclStatus all_reduce(std::uint64_t address, std::uint64_t count, DataType type, NcclComm comm,
                        CudaStream stream) override {
    return status(nccl_.ncclAllReduce(pointer_to<void>(address), pointer_to<void>(address), count,
                                      native(type), ncclSum, native(comm),
                                      static_cast<cudaStream_t>(stream)));
  }
  NcclStatus broadcast(std::uint64_t address, std::uint64_t count, DataType type, int root, NcclComm comm,
                       CudaStream stream) override {
    return status(nccl_.ncclBroadcast(pointer_to<void>(address), pointer_to<void>(address), count,
                                      native(type), root, native(comm), static_cast<cudaStream_t>(stream)));
  }

  double now_seconds() override {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  }
  // A step takes milliseconds, so a pause of 50 us does not delay it, and polling does not keep a core busy.
  void rest() override { std::this_thread::sleep_for(std::chrono::microseconds(50)); }

 private:
  const Nccl nccl_;
};

// NCCL_COMM_BLOCKING in the environment overrides ncclConfig_t::blocking.
void require_no_blocking() {
  constexpr const char* kVariable = "NCCL_COMM_BLOCKING";
  if (environment(kVariable) == "1") {
    throw DeviceError(std::string(kVariable) +
                      " is 1 in the environment: NCCL would wait without limit for a rank that has died; "
                      "unset it");
  }
}

}  // namespace

std::unique_ptr<NcclApi> make_nccl_api() {
  require_no_blocking();
  return std::make_unique<RealNcclApi>();
}

}  // namespace vdnn
