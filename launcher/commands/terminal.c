/* terminal.c - see terminal.h. */
#include "launcher/commands/terminal.h"

#include <locale.h>
#define NCURSES_WIDECHAR 1
#include <ncurses.h>
#include <string.h>

#include "launcher/board/board_screen.h"
#include "proto/base/error.h"
#include "proto/base/library.h"

/* Functions of the library; what ncurses.h has as macros of others is made of these. */
#define TERMINAL_CALLS(X)                                                                                    \
    X(newterm)                                                                                               \
    X(endwin)                                                                                                \
    X(noecho)                                                                                                \
    X(cbreak)                                                                                                \
    X(curs_set)                                                                                              \
    X(keypad)                                                                                                \
    X(wtimeout)                                                                                              \
    X(wgetch)                                                                                                \
    X(werase)                                                                                                \
    X(wmove)                                                                                                 \
    X(waddnstr)                                                                                              \
    X(wrefresh)                                                                                              \
    X(wattrset)                                                                                              \
    X(getmaxx)                                                                                               \
    X(getmaxy)                                                                                               \
    X(start_color)                                                                                           \
    X(use_default_colors)                                                                                    \
    X(has_colors)                                                                                            \
    X(init_pair)                                                                                             \
    X(initscr)
#undef wattrset
#undef getmaxx
#undef getmaxy

struct terminal_calls {
#define CALL_MEMBER(name) __typeof__(name) *name;
    TERMINAL_CALLS(CALL_MEMBER)
#undef CALL_MEMBER
};
static struct terminal_calls calls;
static WINDOW *window;
static bool colors;

static int load_ncurses(struct muster_error *err)
{
/* not linked in any build: a terminal's own library is the system's */
#define CALL_ROW(name) {#name, offsetof(struct terminal_calls, name), false, NULL},
    static const struct library_function functions[] = {TERMINAL_CALLS(CALL_ROW)};
#undef CALL_ROW
    static const struct library library = {
        .file = "libncursesw.so.6",
        .needs = "muster top needs libncursesw (package libncursesw6); --once prints without it",
        .functions = functions,
        .count = sizeof functions / sizeof *functions,
    };
    return library_load(&library, &calls, NULL, err);
}

int terminal_open(struct muster_error *err)
{
    if (load_ncurses(err) < 0)
        return -1;
    (void)setlocale(LC_CTYPE, ""); /* else only ASCII is shown */
    if (!calls.newterm(NULL, stdout, stdin))
        return error_set(err, MUSTER_E_UNSUPPORTED,
                         "this terminal is not known (TERM is not set, or not in terminfo): use --once");
    window = calls.initscr(); /* the screen that newterm has made */
    (void)calls.noecho();
    (void)calls.cbreak();
    (void)calls.curs_set(0);
    (void)calls.keypad(window, TRUE);
    colors = calls.has_colors() && calls.start_color() == OK && calls.use_default_colors() == OK;
    if (colors) {
        (void)calls.init_pair(1, COLOR_GREEN, -1);
        (void)calls.init_pair(2, COLOR_RED, -1);
    }
    return 0;
}

void terminal_size(int *columns, int *rows)
{
    *columns = calls.getmaxx(window);
    *rows = calls.getmaxy(window);
}

static int attributes_of(char mark)
{
    switch (mark) {
    case SCREEN_HEAD:
        return (int)A_BOLD;
    case SCREEN_GOOD:
        return colors ? (int)COLOR_PAIR(1) : 0;
    case SCREEN_BAD:
        return colors ? (int)COLOR_PAIR(2) : (int)A_BOLD;
    case SCREEN_DIM:
        return (int)A_DIM;
    default:
        return 0;
    }
}

void terminal_show(const char *lines)
{
    (void)calls.werase(window); /* what a terminal refuses is not shown */
    for (int row = 0; *lines; row++) {
        const size_t length = strcspn(lines, "\n");
        (void)calls.wattrset(window, attributes_of(*lines));
        if (length > 1 && calls.wmove(window, row, 0) == OK)
            (void)calls.waddnstr(window, lines + 1, (int)length - 1);
        lines += length + (lines[length] == '\n');
    }
    (void)calls.wrefresh(window);
}

enum terminal_key terminal_wait(int patience_ms)
{
    calls.wtimeout(window, patience_ms);
    switch (calls.wgetch(window)) {
    case ERR:
        return TERMINAL_NONE;
    case 'q':
    case 'Q':
    case 27:
        return TERMINAL_QUIT;
    case KEY_UP:
    case 'k':
        return TERMINAL_UP;
    case KEY_DOWN:
    case 'j':
        return TERMINAL_DOWN;
    default:
        return TERMINAL_OTHER;
    }
}

void terminal_close(void)
{
    (void)calls.endwin();
}
