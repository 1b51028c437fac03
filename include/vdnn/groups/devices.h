#pragma once
// Devices: memory, streams, copies and their order, on a CPU, an NVIDIA GPU or a simulated GPU.

// IWYU pragma: begin_exports
#include "vdnn/address_range.h"
#include "vdnn/cost.h"
#include "vdnn/cpu_device.h"
#include "vdnn/cuda_device.h"
#include "vdnn/device.h"
#include "vdnn/frontier.h"
#include "vdnn/gpu_system.h"
#include "vdnn/sim_device.h"
// IWYU pragma: end_exports
