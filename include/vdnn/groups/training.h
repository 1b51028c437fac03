#pragma once
// Training a network: data sets, sessions, the trainer, checkpoints, and the progress of a run.

// IWYU pragma: begin_exports
#include "vdnn/checkpoint.h"
#include "vdnn/chrome_trace.h"
#include "vdnn/dataset.h"
#include "vdnn/initialisation.h"
#include "vdnn/learning_rate.h"
#include "vdnn/nonfinite.h"
#include "vdnn/process_group.h"
#include "vdnn/progress.h"
#include "vdnn/safetensors.h"
#include "vdnn/session.h"
#include "vdnn/sha256.h"
#include "vdnn/trainer.h"
// IWYU pragma: end_exports
