#include "allocator/dropin/preload/driver_table.h"

#include "vdnn/error.h"

namespace vdnn::preload {

DriverTable load_driver(PFN_cuGetProcAddress_v12000 look_up) {
  DriverTable driver;
  driver.cuGetProcAddress = look_up;
  std::string missing;
  const auto find = [&](const char* name, int version, auto& function) {
    void* found = nullptr;
    CUdriverProcAddressQueryResult answer = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    if (look_up(name, &found, version, CU_GET_PROC_ADDRESS_LEGACY_STREAM, &answer) != CUDA_SUCCESS ||
        answer != CU_GET_PROC_ADDRESS_SUCCESS || found == nullptr) {
      missing += (missing.empty() ? "" : ", ") + std::string(name);
      return;
    }
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(found);
  };
#define VDNN_PRELOAD_DRIVER_FOUND(call, version) find(#call, version, driver.call);
  VDNN_PRELOAD_DRIVER_CALLS(VDNN_PRELOAD_DRIVER_FOUND)
#undef VDNN_PRELOAD_DRIVER_FOUND
  if (!missing.empty()) {
    throw DeviceError("the CUDA driver has no " + missing);
  }
  return driver;
}

}  // namespace vdnn::preload
