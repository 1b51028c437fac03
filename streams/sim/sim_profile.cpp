#include <array>

#include "vdnn/error.h"
#include "vdnn/sim_device.h"

namespace vdnn {

namespace {

constexpr std::uint64_t kKiB = 1024;
constexpr std::uint64_t kMiB = 1024 * kKiB;
constexpr std::uint64_t kGiB = 1024 * kMiB;

struct Link {
  double device_to_host_bytes_per_second;
  double host_to_device_bytes_per_second;
};
constexpr Link kPcie3{12.8e9, 12.8e9};
constexpr Link kPcie4{25e9, 25e9};
constexpr Link kPcie5{52.8e9, 55e9};

// What differs from GPU to GPU; the rest is CUDA's.
struct Gpu {
  const char* name;
  std::uint64_t memory_bytes;
  double flops_per_second;
  double bytes_per_second;
  Link link;
  const char* source;
  std::uint64_t host_memory_bytes = 512 * kGiB;
  double launch_seconds = 3e-6;
};

SimProfile profile_of(const Gpu& gpu) {
  return {.name = gpu.name,
          .memory_bytes = gpu.memory_bytes,
          .host_memory_bytes = gpu.host_memory_bytes,
          .granule_bytes = 2 * kMiB,
          .alignment_bytes = 512,
          .flops_per_second = gpu.flops_per_second,
          .bytes_per_second = gpu.bytes_per_second,
          .device_to_host_bytes_per_second = gpu.link.device_to_host_bytes_per_second,
          .host_to_device_bytes_per_second = gpu.link.host_to_device_bytes_per_second,
          .launch_seconds = gpu.launch_seconds,
          .source = gpu.source};
}

const std::array<SimProfile, 6>& profiles() {
  static const std::array<SimProfile, 6> kProfiles{{
      profile_of(
          {.name = "titan-x",
           .memory_bytes = 12 * kGiB,
           .flops_per_second = 0.6 * 7e12,
           .bytes_per_second = 0.8 * 336e9,
           .link = kPcie3,
           .source =
               "Titan X (Maxwell) as in the vDNN paper: 0.6 of its 7 TFLOP/s fp32 peak, 0.8 of its 336 GB/s, "
               "PCIe gen3 at the 12.8 GB/s measured there, each way; 5 us a launch is assumed",
           .host_memory_bytes = 64 * kGiB,
           .launch_seconds = 5e-6}),
      profile_of(
          {.name = "a100",
           .memory_bytes = 81153 * kMiB,
           .flops_per_second = 0.6 * 19.5e12,
           .bytes_per_second = 0.8 * 2039e9,
           .link = kPcie4,
           .source = "A100 SXM4 80 GB by its datasheet: 0.6 of the 19.5 TFLOP/s fp32 peak (no TF32), 0.8 of "
                     "its 2039 GB/s, PCIe gen4 at the 25 GB/s reported one way; 512 GiB of host memory and 3 "
                     "us a launch are assumed"}),
      profile_of(
          {.name = "rtx4090",
           .memory_bytes = 24564 * kMiB,
           .flops_per_second = 0.6 * 82.6e12,
           .bytes_per_second = 0.8 * 1008e9,
           .link = kPcie4,
           .source =
               "RTX 4090 by its datasheet: 0.6 of the 82.6 TFLOP/s fp32 peak (no TF32), 0.8 of its 1008 "
               "GB/s, PCIe gen4 at the 25 GB/s reported one way; 512 GiB of host memory and 3 us a "
               "launch are assumed"}),
      profile_of(
          {.name = "h200",
           .memory_bytes = 143771 * kMiB,
           .flops_per_second = 0.6 * 67e12,
           .bytes_per_second = 4.3e12,
           .link = kPcie5,
           .source = "H200: memory as the driver reports it, 0.6 of the datasheet's 67 TFLOP/s fp32 peak (no "
                     "TF32), the 4.3 TB/s that a copy reached of 4.8, PCIe gen5 as reported for H100 (52.8 "
                     "GB/s to the host, about 55 by copy engine from it); 512 GiB of host memory and 3 us a "
                     "launch are assumed"}),
      profile_of(
          {.name = "b200",
           .memory_bytes = 183359 * kMiB,
           .flops_per_second = 0.6 * 75e12,
           .bytes_per_second = 0.8 * 8e12,
           .link = kPcie5,
           .source = "B200 by the datasheet of the HGX board: 0.6 of the 75 TFLOP/s fp32 peak (no TF32), 0.8 "
                     "of its 8 TB/s, PCIe gen5 as reported for H100 (52.8 GB/s to the host, about 55 by copy "
                     "engine from it); 512 GiB of host memory and 3 us a launch are assumed"}),
      {.name = "cpu",
       .memory_bytes = 24 * kGiB,
       .host_memory_bytes = 24 * kGiB,
       .granule_bytes = 64 * kKiB,
       .alignment_bytes = 256,
       .flops_per_second = 120e9,
       .bytes_per_second = 10e9,
       .device_to_host_bytes_per_second = 8e9,
       .host_to_device_bytes_per_second = 8e9,
       .launch_seconds = 10e-6,
       .source =
           "two cores as CI has them: 120 GFLOP/s, which 3x3 convolutions of oneDNN 2.6 reached in NHWC; "
           "10 GB/s of memory traffic, 8 GB/s a copy and 10 us a launch are assumed; granule and "
           "alignment are those of the cpu driver"},
  }};
  return kProfiles;
}

}  // namespace

SimProfile sim_profile(const std::string& name) {
  std::string known;
  for (const SimProfile& profile : profiles()) {
    if (profile.name == name) {
      return profile;
    }
    known += (known.empty() ? "" : ", ") + profile.name;
  }
  throw InvalidArgument("there is no sim profile '" + name + "'; there are " + known);
}

std::vector<std::string> sim_profile_names() {
  std::vector<std::string> names;
  for (const SimProfile& profile : profiles()) {
    names.push_back(profile.name);
  }
  return names;
}

}  // namespace vdnn
