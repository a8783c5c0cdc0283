/* launcher_config_support.h - a command line as one text, parsed and resolved as `muster run` would. */
#ifndef MUSTER_TESTS_LAUNCHER_CONFIG_SUPPORT_H
#define MUSTER_TESTS_LAUNCHER_CONFIG_SUPPORT_H

#include "launcher/config/config.h"

enum { ARGUMENT_LIMIT = 32 };

struct parsed {
    struct run_config config; /* the test's to free with config_free */
    struct muster_error err;
    char text[1024], *argv[ARGUMENT_LIMIT];
    int result;
};

extern const struct machine four_cores, two_gpus, worker_one; /* worker_one: the pod pt-worker-1 */

/* line: words separated by spaces; variables: as for fake_environment. The result is valid until the next
 * call. */
struct parsed *parse_as(enum config_command command, const char *line, const char *variables,
                        const struct machine *machine);
/* The same as muster run. */
struct parsed *parse_on(const char *line, const char *variables, const struct machine *machine);
/* The same on four_cores. */
struct parsed *parse(const char *line, const char *variables);

#define assert_parsed(p)                                                                                     \
    do {                                                                                                     \
        if ((p)->result != 0)                                                                                \
            fail_msg("%s", (p)->err.text);                                                                   \
    } while (0)

#endif
