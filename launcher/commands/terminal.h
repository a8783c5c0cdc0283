/* terminal.h - a full screen of lines (board_screen.h) by ncurses, which is loaded on first use. One at a
 * time in a process. */
#ifndef MUSTER_LAUNCHER_COMMANDS_TERMINAL_H
#define MUSTER_LAUNCHER_COMMANDS_TERMINAL_H

#include <stdbool.h>

#include "proto/include/muster_error.h"

/* Takes the terminal of standard input and output. MUSTER_E_NOT_FOUND names the package that is missing. */
int terminal_open(struct muster_error *err);
void terminal_size(int *columns, int *rows);
/* Lines as board_screen gives them. */
void terminal_show(const char *lines);
enum terminal_key { TERMINAL_NONE, TERMINAL_QUIT, TERMINAL_UP, TERMINAL_DOWN, TERMINAL_OTHER };
/* Waits for a key, so long at most. */
enum terminal_key terminal_wait(int patience_ms);
/* Gives the terminal back as it was. */
void terminal_close(void);

#endif
