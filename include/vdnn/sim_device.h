#pragma once
// The `sim` driver: the real executor and the real allocator on a virtual clock. Memory is offsets only;
// nothing is touched and no work is run. It answers three questions.
//
// * How long does a step take, and how much memory does it need? Streams are queues on a virtual clock. A
//   piece of work starts when its stream and everything that it waits for are ready (a copy also needs the
//   engine of its direction). Its time follows from its cost and the profile's rates. This is how plans are
//   predicted.
// * Is every conflicting pair of accesses ordered? For each byte range, the race checker keeps the last write
//   and the reads that followed it, as points (vdnn/frontier.h). A new access is ordered after such a point
//   if the frontier of its stream dominates the point (happens-before by vector clocks, Mattern 1989; the
//   FastTrack idea). So the checker finds a race even if the order of this run does no harm.
// * Does any permitted order read different contents? With `order_seed` the work is executed in a random
//   order among all those that streams and waits permit, and each read checks the version of its byte range.
//   This check does not use frontiers.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "vdnn/cost.h"
#include "vdnn/device.h"

namespace vdnn {

// Floating-point operations per second that programs reach, by kind of arithmetic.
struct FlopRates {
  double convolution = 0;
  double matrix_product = 0;
  double other = 0;
  // The rates of convolutions and matrix products whose factors are rounded to these types. 0: the device
  // does not multiply in that type.
  double tf32 = 0;
  double fp16 = 0;
  double bf16 = 0;

  // The rate for the arithmetic and the precision of `cost`. If the device does not multiply in that
  // precision, the rate of fp32.
  double of(const Cost& cost) const;
};

// Bytes per second between device and host.
struct LinkRates {
  double device_to_host = 0;
  double host_to_device = 0;

  double operator[](CopyDirection direction) const {
    return direction == CopyDirection::kDeviceToHost ? device_to_host : host_to_device;
  }
};

// The figures of a device. Rates are those that programs reach, not those of the datasheet.
struct SimProfile {
  std::string name;
  std::uint64_t memory_bytes = 0;
  std::uint64_t host_memory_bytes = 0;
  std::uint64_t granule_bytes = 0;
  std::uint64_t alignment_bytes = 0;
  FlopRates flops_per_second;
  double bytes_per_second = 0;  // device memory
  LinkRates link_bytes_per_second;
  // The rates while both directions are busy; at most the rates of one direction alone.
  LinkRates link_bytes_per_second_both_ways;
  // The number of devices at one PCIe root of the host. 1: no other device is known to share the link.
  std::uint64_t devices_on_root = 1;
  // Bytes per second that the devices at one root copy together, each way. 0: not known.
  double root_bytes_per_second = 0;
  // Bytes per second between two devices of one machine in a collective, each way while both ways are in use.
  // 0: the devices reach each other over the link to the host.
  double peer_bytes_per_second = 0;
  double peer_seconds = 0;    // latency of a message between two such devices
  double launch_seconds = 0;  // added to each piece of work and each copy
  std::string source;         // which device, or where the figures come from, for people

  // The time of a piece of work on the idle device, its launch included, by the roofline model (Williams,
  // Waterman and Patterson 2009): arithmetic and memory traffic overlap perfectly.
  double seconds(const Cost& cost) const;
};

// The profile in `share/devices/NAME.json`, which is built into the library: "titan-x" (the vDNN paper's
// machine), "v100-16", "v100-32", "a100", "rtx4090", "h100", "h200", "b200", and "cpu" (the machine class
// that CI runs on). Throws InvalidArgument, which lists the names, for an unknown name.
SimProfile sim_profile(const std::string& name);
std::vector<std::string> sim_profile_names();

// Parses the text of a profile (docs/device_profile.schema.json). Throws DataError, which names the key, if
// a key is missing, unknown or has an impossible value.
SimProfile parse_sim_profile(std::string_view text);

// The profile of a device while `devices` (> 0) devices of its machine copy at once. The devices at one root
// share the root's rate evenly. Devices beyond devices_on_root are at other roots and do not slow this one.
SimProfile with_shared_link(SimProfile profile, std::uint64_t devices);

struct SimDeviceOptions {
  SimProfile profile;
  std::uint64_t budget_bytes = 0;       // 0: the profile's memory; may exceed it
  std::uint64_t host_budget_bytes = 0;  // 0: half of the profile's host memory
  bool page_aligned_blocks = false;     // as in CpuDeviceOptions, to predict runs that use it
  bool check_races = false;
  bool check_versions = false;
  // Execute in a random permitted order drawn from this seed, instead of by the virtual clock.
  std::optional<std::uint64_t> order_seed;
};

// Something that must not happen, with the names of the work involved.
struct SimFinding {
  enum class Kind : std::uint8_t { kRace, kStaleVersion, kNotCommitted, kInaccessible };
  Kind kind = Kind::kRace;
  std::string first;   // the earlier work in submission order, or the writer of the contents
  std::string second;  // the work at fault
  AddressRange range;
  std::string text;  // one sentence
};

class SimDevice : public Device {
 public:
  // The findings so far, at most a hundred, in the order in which they were found.
  virtual const std::vector<SimFinding>& findings() const = 0;
  // A hash of the order in which work was executed so far: equal hashes mean equal orders.
  virtual std::uint64_t order_hash() const = 0;
  // Virtual time at which the device has finished all submitted work. Do not call it with `order_seed`.
  virtual double finish_seconds() const = 0;

 protected:
  using Device::Device;
};

std::unique_ptr<SimDevice> make_sim_device(const SimDeviceOptions& options);

}  // namespace vdnn
