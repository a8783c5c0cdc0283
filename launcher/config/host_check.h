/* host_check.h - pure: hosts that no look-up can ever find, so that no node waits for one. */
#ifndef MUSTER_LAUNCHER_CONFIG_HOST_CHECK_H
#define MUSTER_LAUNCHER_CONFIG_HOST_CHECK_H

#include <stdbool.h>
#include <stddef.h>

enum { HOST_CHECK_TEXT = 320 };

/* Whether text has something that was to be replaced by a value ("$(MASTER)", "<ip>", "{{ host }}"); why gets
 * what and by whom. */
bool host_check_is_template(const char *text, char why[HOST_CHECK_TEXT]);
/* Whether host, without port and brackets, can be neither a name nor an address; why gets the reason, to be
 * read after "...: ". A name that may exist passes, whatever it resolves to. */
bool host_check_is_impossible(const char *host, char why[HOST_CHECK_TEXT]);

#endif
