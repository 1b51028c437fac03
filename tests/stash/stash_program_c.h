#pragma once
// A program in C that saves tensors through a stash on the host.

#include "vdnn/stash.h"

#ifdef __cplusplus
extern "C" {
#endif

// Runs three steps. Returns null or the text of an error.
const char* run_stash_program(vdnn_stash* stash);

#ifdef __cplusplus
}
#endif
