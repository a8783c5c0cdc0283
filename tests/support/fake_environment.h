/* fake_environment.h - an environment for code that reads variables through a callback: context is the text
 * "NAME=value NAME=value" (values without spaces), NULL for an empty one. */
#ifndef MUSTER_TESTS_FAKE_ENVIRONMENT_H
#define MUSTER_TESTS_FAKE_ENVIRONMENT_H

/* The value, valid until many more were asked for, or NULL. */
const char *fake_environment(void *context, const char *name);

#endif
