#pragma once
// For authors of extensions: layers, libraries of kernels, policies, communicators and backends of their own.
// Programs that only train, plan or allocate need none of these headers.

// IWYU pragma: begin_exports
#include "vdnn/classic_catalog.h"
#include "vdnn/collective_costs.h"
#include "vdnn/communicator.h"
#include "vdnn/cpu_ops.h"
#include "vdnn/cuda_ops.h"
#include "vdnn/custom_layer.h"
#include "vdnn/executor.h"
#include "vdnn/failing_backend.h"
#include "vdnn/forecast.h"
#include "vdnn/forwarding_backend.h"
#include "vdnn/limited_backend.h"
#include "vdnn/nccl_communicator.h"
#include "vdnn/op_catalog.h"
#include "vdnn/op_library.h"
#include "vdnn/op_operands.h"
#include "vdnn/optimal_plan.h"
#include "vdnn/parameter_store.h"
#include "vdnn/plan_costs.h"
#include "vdnn/plan_search.h"
#include "vdnn/pool_backend.h"
#include "vdnn/stash_backend.h"
// IWYU pragma: end_exports
