/* agent_search.h - the job is looked for at the entries of --rdzv-endpoint next to the first, as long as this
 * agent knows no server of it. */
#ifndef MUSTER_LAUNCHER_AGENT_SEARCH_AGENT_SEARCH_H
#define MUSTER_LAUNCHER_AGENT_SEARCH_AGENT_SEARCH_H

#include "launcher/agent/agent_internal.h"

extern const struct agent_part agent_search_part;

#endif
