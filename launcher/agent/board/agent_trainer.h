/* agent_trainer.h - reports the job's progress to Kubeflow Trainer (trainer/trainer_status.h), where its URL
 * is set and this agent serves the job: once there are steps every ten seconds, and at the end. */
#ifndef MUSTER_LAUNCHER_AGENT_AGENT_TRAINER_H
#define MUSTER_LAUNCHER_AGENT_AGENT_TRAINER_H

#include "launcher/agent/agent_internal.h"

extern const struct agent_part agent_trainer_part;

#endif
