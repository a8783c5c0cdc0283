/* launcher_config_support.c - see launcher_config_support.h. */
#include "tests/unit/launcher/launcher_config_support.h"

#include <stdio.h>
#include <string.h>

#include "tests/support/fake_environment.h"

const struct machine four_cores = {.cores = 4, .gpus = 0, .random = {0x0123456789abcdef, 0xfedcba9876543210}};
const struct machine two_gpus = {.cores = 4, .gpus = 2};
const struct machine worker_one = {.cores = 4, .host_name = "pt-worker-1"};

/* text is changed */
static int split(char *text, char *argv[ARGUMENT_LIMIT])
{
    int argc = 0;
    for (char *word = strtok(text, " "); word && argc < ARGUMENT_LIMIT - 1; word = strtok(NULL, " "))
        argv[argc++] = word;
    argv[argc] = NULL;
    return argc;
}

struct parsed *parse_as(enum config_command command, const char *line, const char *variables,
                        const struct machine *machine)
{
    static struct parsed p;
    p = (struct parsed){.config.command = command};
    (void)snprintf(p.text, sizeof p.text, "%s", line);
    int argc = split(p.text, p.argv);
    p.result = config_parse(argc, p.argv, fake_environment, (void *)variables, &p.config, &p.err);
    if (p.result == 0 && !p.config.help)
        p.result = config_resolve(&p.config, machine, fake_environment, (void *)variables, &p.err);
    return &p;
}

struct parsed *parse_on(const char *line, const char *variables, const struct machine *machine)
{
    return parse_as(COMMAND_RUN, line, variables, machine);
}

struct parsed *parse(const char *line, const char *variables)
{
    return parse_on(line, variables, &four_cores);
}
