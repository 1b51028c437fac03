#include "src/cli/device_list.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <iomanip>
#include <nlohmann/json.hpp>
#include <ostream>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>

#include "src/cli/table.h"
#include "src/run/run_target.h"
#include "streams/host_memory.h"
#include "streams/sim/known_profiles.h"
#include "vdnn/error.h"
#include "vdnn/size.h"

namespace vdnn {

namespace {

using Json = nlohmann::ordered_json;

// The rates of a profile. Each is an object with a value and its source.
constexpr std::array kRates{"flops_per_second",
                            "bytes_per_second",
                            "device_to_host_bytes_per_second",
                            "host_to_device_bytes_per_second",
                            "device_to_host_bytes_per_second_both_ways",
                            "host_to_device_bytes_per_second_both_ways",
                            "launch_seconds"};

Json profile_of(std::string_view name) {
  const auto profiles = known_profiles();
  return Json::parse(std::ranges::find(profiles, name, &KnownProfile::name)->text);
}

Json figure(std::uint64_t value, const std::string& source) {
  return {{"value", value}, {"source", source}};
}

// `rates_of` is the name of a profile.
Json device(const std::string& name, const std::string& what, Json memory, const std::string& rates_of) {
  const Json profile = profile_of(rates_of);
  Json json{{"type", "device"},    {"device", name},
            {"simulated", false},  {"what", what},
            {"cores", nullptr},    {"memory_bytes", std::move(memory)},
            {"uuid", nullptr},     {"compute_capability", nullptr},
            {"rates_of", rates_of}};
  for (const char* const key : kRates) {
    json[key] = profile.at(key);
  }
  return json;
}

Json cpu() {
  const unsigned int cores = std::thread::hardware_concurrency();
  Json json =
      device("cpu", std::to_string(cores) + " cores of this machine",
             figure(host_memory_bytes(), "this machine, or the limit of the process's control group"), "cpu");
  json["cores"] = cores;
  return json;
}

Json gpu(GpuSystem& gpus, int ordinal) {
  const std::string name = gpus.gpu_name(ordinal);
  const GpuRates rates = rates_of_gpu(name);
  Json json = device("cuda:" + std::to_string(ordinal), name,
                     figure(gpus.free_bytes(ordinal), "free now, as CUDA reports it"), rates.profile);
  json["uuid"] = gpus.gpu_uuid(ordinal);
  json["compute_capability"] = gpus.compute_capability(ordinal);
  return json;
}

double value_of(const Json& figure) {
  return figure.at("value").get<double>();
}

std::string with_digits(double value) {
  std::ostringstream text;
  text << std::fixed << std::setprecision(1) << value;
  return text.str();
}

Table::Row row_of(const Json& device) {
  constexpr double kGiga = 1e9;
  return {device.at("device"),
          format_rounded_size(device.at("memory_bytes").at("value")),
          with_digits(value_of(device.at("flops_per_second").at("convolution")) / kGiga),
          with_digits(value_of(device.at("bytes_per_second")) / kGiga),
          with_digits(value_of(device.at("device_to_host_bytes_per_second")) / kGiga),
          with_digits(value_of(device.at("host_to_device_bytes_per_second")) / kGiga),
          device.at("what")};
}

void print_sources(std::ostream& out, const Json& device) {
  out << "\n" << device.at("device").get<std::string>() << "\n";
  const auto print = [&](const char* what, const Json& figure) {
    out << "  " << what << ": " << figure.at("source").get<std::string>() << "\n";
  };
  print("memory", device.at("memory_bytes"));
  if (!device.at("simulated").get<bool>()) {
    out << "  rates: those of sim:" << device.at("rates_of").get<std::string>()
        << "; vdnn profile measures this machine\n";
    return;
  }
  print("fp32", device.at("flops_per_second").at("convolution"));
  print("memory bandwidth", device.at("bytes_per_second"));
  print("to the host", device.at("device_to_host_bytes_per_second"));
  print("to the device", device.at("host_to_device_bytes_per_second"));
}

}  // namespace

std::vector<Json> present_devices(GpuSystem* gpus, const std::function<void(const std::string&)>& refused) {
  std::vector<Json> devices{cpu()};
  for (int ordinal = 0; gpus != nullptr && ordinal < gpus->count(); ++ordinal) {
    try {
      devices.push_back(gpu(*gpus, ordinal));
    } catch (const Error& error) {
      refused("cuda:" + std::to_string(ordinal) + ": " + error.what());
    }
  }
  return devices;
}

std::vector<Json> simulated_devices() {
  std::vector<Json> devices;
  for (const KnownProfile& known : known_profiles()) {
    const std::string name(known.name);
    const Json profile = profile_of(name);
    Json json = device("sim:" + name, profile.at("what"), profile.at("memory_bytes"), name);
    json["simulated"] = true;
    devices.push_back(std::move(json));
  }
  return devices;
}

void print_devices(std::ostream& out, const std::vector<Json>& devices) {
  Table table;
  table.add({"device", "memory", "fp32 GFLOP/s", "memory GB/s", "to host GB/s", "to device GB/s", "what"});
  for (const Json& each : devices) {
    table.add(row_of(each));
  }
  table.print(out);
  out << "\nRates are achieved rates; fp32 is that of convolutions. Sources:\n";
  for (const Json& each : devices) {
    print_sources(out, each);
  }
}

}  // namespace vdnn
