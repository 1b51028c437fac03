// Measures a GPU and its link, and writes JSON to standard output. It measures copies over the link one way
// and both ways at once, with page-locked and pageable memory, copies within the device, and matrix products
// in three precisions. It also writes the device's properties in cuDNN's format, from which cuDNN plans
// without a device (share/devices).
//
// Rates are medians of several rounds, timed by events on the device. Copies of pageable memory, which
// involve the host, are timed by the host's clock. Operands of products are random, since zeros are faster.

#include <cublas_v2.h>
#include <cuda_runtime_api.h>
#include <cudnn.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <functional>
#include <iostream>
#include <nlohmann/json.hpp>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kLinkBytes = std::size_t{256} << 20;
constexpr std::size_t kDeviceBytes = std::size_t{1} << 30;
constexpr int kProductSize = 8192;
constexpr int kRounds = 9;
constexpr double kGiga = 1e9;

void check(cudaError_t status, const char* call) {
  if (status != cudaSuccess) {
    throw std::runtime_error(std::string(call) + ": " + cudaGetErrorName(status) + ": " +
                             cudaGetErrorString(status));
  }
}
void check(cublasStatus_t status, const char* call) {
  if (status != CUBLAS_STATUS_SUCCESS) {
    throw std::runtime_error(std::string(call) + ": " + cublasGetStatusString(status));
  }
}
void check(cudnnStatus_t status, const char* call) {
  if (status != CUDNN_STATUS_SUCCESS) {
    throw std::runtime_error(std::string(call) + ": " + cudnnGetErrorString(status));
  }
}

class DeviceMemory {
 public:
  explicit DeviceMemory(std::size_t bytes) { check(cudaMalloc(&data_, bytes), "cudaMalloc"); }
  ~DeviceMemory() { static_cast<void>(cudaFree(data_)); }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  void* data() const { return data_; }

 private:
  void* data_ = nullptr;
};

class PinnedMemory {
 public:
  explicit PinnedMemory(std::size_t bytes) {
    check(cudaHostAlloc(&data_, bytes, cudaHostAllocDefault), "cudaHostAlloc");
  }
  ~PinnedMemory() { static_cast<void>(cudaFreeHost(data_)); }
  PinnedMemory(const PinnedMemory&) = delete;
  PinnedMemory& operator=(const PinnedMemory&) = delete;
  void* data() const { return data_; }

 private:
  void* data_ = nullptr;
};

class Stream {
 public:
  Stream() { check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags"); }
  ~Stream() { static_cast<void>(cudaStreamDestroy(stream_)); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  operator cudaStream_t() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

class Event {
 public:
  Event() { check(cudaEventCreate(&event_), "cudaEventCreate"); }
  ~Event() { static_cast<void>(cudaEventDestroy(event_)); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  operator cudaEvent_t() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

double median(std::vector<double> seconds) {
  std::ranges::sort(seconds);
  return seconds[seconds.size() / 2];
}

// Median seconds of the work that `submit` gives to `stream`.
double device_seconds(const Stream& stream, const std::function<void()>& submit) {
  const Event begin;
  const Event end;
  std::vector<double> seconds;
  for (int round = -1; round < kRounds; ++round) {  // the first round warms up
    check(cudaEventRecord(begin, stream), "cudaEventRecord");
    submit();
    check(cudaEventRecord(end, stream), "cudaEventRecord");
    check(cudaEventSynchronize(end), "cudaEventSynchronize");
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, begin, end), "cudaEventElapsedTime");
    if (round >= 0) {
      seconds.push_back(static_cast<double>(milliseconds) * 1e-3);
    }
  }
  return median(std::move(seconds));
}

// Median seconds of `run`, which waits for its work.
double host_seconds(const std::function<void()>& run) {
  std::vector<double> seconds;
  for (int round = -1; round < kRounds; ++round) {
    const auto begin = std::chrono::steady_clock::now();
    run();
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
    if (round >= 0) {
      seconds.push_back(taken.count());
    }
  }
  return median(std::move(seconds));
}

void copy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  check(cudaMemcpyAsync(to, from, bytes, kind, stream), "cudaMemcpyAsync");
}

// Rates of copies over the link in GB/s, by direction.
Json link_rates() {
  const DeviceMemory on_device(2 * kLinkBytes);
  const PinnedMemory pinned(2 * kLinkBytes);
  std::vector<char> pageable(kLinkBytes, 1);
  const Stream offload;
  const Stream prefetch;
  char* const device = static_cast<char*>(on_device.data());
  char* const host = static_cast<char*>(pinned.data());

  const auto rate = [](double seconds) { return static_cast<double>(kLinkBytes) / seconds / kGiga; };
  const auto to_host = [&] { copy(host, device, kLinkBytes, cudaMemcpyDeviceToHost, offload); };
  const auto to_device = [&] {
    copy(device + kLinkBytes, host + kLinkBytes, kLinkBytes, cudaMemcpyHostToDevice, prefetch);
  };
  const double both = host_seconds([&] {
    to_host();
    to_device();
    check(cudaStreamSynchronize(offload), "cudaStreamSynchronize");
    check(cudaStreamSynchronize(prefetch), "cudaStreamSynchronize");
  });
  const auto pageable_seconds = [&](void* to, const void* from, cudaMemcpyKind kind) {
    return host_seconds([&] {
      copy(to, from, kLinkBytes, kind, offload);
      check(cudaStreamSynchronize(offload), "cudaStreamSynchronize");
    });
  };
  return {
      {"copy_bytes", kLinkBytes},
      {"pinned_device_to_host", rate(device_seconds(offload, to_host))},
      {"pinned_host_to_device", rate(device_seconds(prefetch, to_device))},
      {"pinned_both_ways_each", rate(both)},
      {"pageable_device_to_host", rate(pageable_seconds(pageable.data(), device, cudaMemcpyDeviceToHost))},
      {"pageable_host_to_device", rate(pageable_seconds(device, pageable.data(), cudaMemcpyHostToDevice))}};
}

// The rate of copies within the device in GB/s, counting both read and written bytes.
double device_copy_rate() {
  const DeviceMemory from(kDeviceBytes);
  const DeviceMemory to(kDeviceBytes);
  const Stream stream;
  const double seconds = device_seconds(
      stream, [&] { copy(to.data(), from.data(), kDeviceBytes, cudaMemcpyDeviceToDevice, stream); });
  return 2 * static_cast<double>(kDeviceBytes) / seconds / kGiga;
}

struct Precision {
  const char* name;
  cudaDataType_t operands;
  std::size_t operand_bytes;
  cublasComputeType_t compute;
};

// Random operands whose magnitude is between 1 and 2 in every type: sign and fraction are random, and the
// exponent is that of 1.
std::vector<std::uint32_t> random_operands(std::size_t words, std::size_t operand_bytes) {
  std::mt19937 draw(1);
  std::vector<std::uint32_t> result(words);
  const std::uint32_t random = operand_bytes == 4 ? 0x807fffffU : 0x807f807fU;
  const std::uint32_t one = operand_bytes == 4 ? 0x3f800000U : 0x3f803f80U;
  std::ranges::generate(result, [&] { return (static_cast<std::uint32_t>(draw()) & random) | one; });
  return result;
}

// The rate of a matrix product in TFLOP/s.
double product_rate(cublasHandle_t handle, const Stream& stream, const Precision& precision) {
  constexpr std::size_t kElements = std::size_t{kProductSize} * kProductSize;
  const std::size_t bytes = kElements * precision.operand_bytes;
  const DeviceMemory a(bytes);
  const DeviceMemory b(bytes);
  const DeviceMemory c(kElements * sizeof(float));
  const std::vector<std::uint32_t> operands = random_operands(bytes / 4, precision.operand_bytes);
  for (const DeviceMemory* memory : {&a, &b}) {
    check(cudaMemcpy(memory->data(), operands.data(), bytes, cudaMemcpyHostToDevice), "cudaMemcpy");
  }
  // A copy from pageable memory may still run when its call returns, and `stream` does not wait for it.
  check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  const float one = 1;
  const float zero = 0;
  const double seconds = device_seconds(stream, [&] {
    check(cublasGemmEx(handle, CUBLAS_OP_N, CUBLAS_OP_N, kProductSize, kProductSize, kProductSize, &one,
                       a.data(), precision.operands, kProductSize, b.data(), precision.operands, kProductSize,
                       &zero, c.data(), CUDA_R_32F, kProductSize, precision.compute, CUBLAS_GEMM_DEFAULT),
          "cublasGemmEx");
  });
  return 2 * static_cast<double>(kElements) * kProductSize / seconds * 1e-12;
}

Json product_rates() {
  const Stream stream;
  cublasHandle_t handle = nullptr;
  check(cublasCreate(&handle), "cublasCreate");
  check(cublasSetStream(handle, stream), "cublasSetStream");
  constexpr std::array kPrecisions{
      Precision{"fp32", CUDA_R_32F, 4, CUBLAS_COMPUTE_32F_PEDANTIC},
      Precision{"tf32", CUDA_R_32F, 4, CUBLAS_COMPUTE_32F_FAST_TF32},
      Precision{"bf16", CUDA_R_16BF, 2, CUBLAS_COMPUTE_32F},
  };
  Json result{{"size", kProductSize}};
  for (const Precision& precision : kPrecisions) {
    result[precision.name] = product_rate(handle, stream, precision);
  }
  check(cublasDestroy(handle), "cublasDestroy");
  return result;
}

Json cudnn_properties(int ordinal) {
  cudnnBackendDescriptor_t descriptor = nullptr;
  check(cudnnBackendCreateDescriptor(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &descriptor),
        "cudnnBackendCreateDescriptor");
  const std::int32_t device = ordinal;
  check(cudnnBackendSetAttribute(descriptor, CUDNN_ATTR_DEVICEPROP_DEVICE_ID, CUDNN_TYPE_INT32, 1, &device),
        "cudnnBackendSetAttribute");
  check(cudnnBackendFinalize(descriptor), "cudnnBackendFinalize");
  std::int64_t length = 0;
  check(cudnnBackendGetAttribute(descriptor, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, 0,
                                 &length, nullptr),
        "cudnnBackendGetAttribute");
  std::vector<char> text(static_cast<std::size_t>(length));
  check(cudnnBackendGetAttribute(descriptor, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
                                 length, &length, text.data()),
        "cudnnBackendGetAttribute");
  check(cudnnBackendDestroyDescriptor(descriptor), "cudnnBackendDestroyDescriptor");
  return Json::parse(text.begin(), std::ranges::find(text, '\0'));
}

Json versions() {
  int driver = 0;
  int runtime = 0;
  check(cudaDriverGetVersion(&driver), "cudaDriverGetVersion");
  check(cudaRuntimeGetVersion(&runtime), "cudaRuntimeGetVersion");
  return {{"driver", driver}, {"runtime", runtime}, {"cudnn", cudnnGetVersion()}};
}

Json profile(int ordinal) {
  check(cudaSetDevice(ordinal), "cudaSetDevice");
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, ordinal), "cudaGetDeviceProperties");
  std::size_t free = 0;
  std::size_t total = 0;
  check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
  return {{"format", "vdnn device profile"},
          {"version", 1},
          {"name", properties.name},
          {"compute_capability", std::to_string(properties.major) + "." + std::to_string(properties.minor)},
          {"multiprocessors", properties.multiProcessorCount},
          {"memory_bytes", total},
          {"free_bytes", free},
          {"l2_bytes", properties.l2CacheSize},
          {"copy_engines", properties.asyncEngineCount},
          {"versions", versions()},
          {"link_gigabytes_per_second", link_rates()},
          {"device_copy_gigabytes_per_second", device_copy_rate()},
          {"matrix_product_teraflops", product_rates()},
          {"cudnn_device_properties", cudnn_properties(ordinal)}};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 2) {
    std::cerr << "usage: " << argv[0] << " [ORDINAL]\n";
    return 2;
  }
  try {
    std::cout << profile(argc == 2 ? std::stoi(argv[1]) : 0).dump(2) << '\n';
  } catch (const std::exception& error) {
    std::cerr << "device_profile: " << error.what() << '\n';
    return EXIT_FAILURE;
  }
  return EXIT_SUCCESS;
}
