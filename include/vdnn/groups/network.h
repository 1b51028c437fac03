#pragma once
// Networks: their layers, shapes and types, and the zoo.

// IWYU pragma: begin_exports
#include "vdnn/error.h"
#include "vdnn/network.h"
#include "vdnn/op_spec.h"
#include "vdnn/precision.h"
#include "vdnn/size.h"
#include "vdnn/tensor.h"
#include "vdnn/zoo.h"
// IWYU pragma: end_exports
