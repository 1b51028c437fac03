#pragma once
// Planning and predicting a run: policies, schedules, costs, and the time and memory of a step.

// IWYU pragma: begin_exports
#include "vdnn/checker.h"
#include "vdnn/cost_measurement.h"
#include "vdnn/learned_costs.h"
#include "vdnn/learned_step.h"
#include "vdnn/measured_costs.h"
#include "vdnn/option_error.h"
#include "vdnn/plan.h"
#include "vdnn/planned_run.h"
#include "vdnn/predictor.h"
#include "vdnn/schedule.h"
#include "vdnn/schedule_file.h"
#include "vdnn/tape.h"
// IWYU pragma: end_exports
