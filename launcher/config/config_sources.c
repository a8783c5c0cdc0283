/* config_sources.c - the command line of `muster run` up to the program (pure); see config_internal.h. */
#include "launcher/config/config_internal.h"

#include "proto/base/knob_args.h"

int config_parse_flags(struct command_line *line, struct run_config *config, struct muster_error *err)
{
    return knob_parse_flags(config_table(), config, config->sources, line->argc, line->argv, &line->at,
                            &config->help, err);
}
