// The C++ headers compile in a program that uses C++17.

#include "vdnn/allocator_failure.h"
#include "vdnn/cccl_resource.h"
#include "vdnn/cub_allocator.h"
#include "vdnn/deallocation.h"
#include "vdnn/thrust_allocator.h"

static_assert(__cplusplus == 201703L);

template class vdnn::ThrustAllocator<char>;
