/* top_command.c - see commands.h. */
#include "launcher/commands/commands.h"

#define NCURSES_WIDECHAR 1
#include <locale.h>
#include <ncurses.h>
#include <string.h>
#include <unistd.h>

#include "launcher/board/board_screen.h"
#include "launcher/commands/board_source.h"
#include "proto/base/clock.h"
#include "proto/base/error.h"
#include "proto/base/library.h"
#include "proto/exit_code.h"

/* --- the terminal: a full screen of lines by ncurses, which is loaded on first use. One at a time in a
 * process --- */

enum terminal_key { TERMINAL_NONE, TERMINAL_QUIT, TERMINAL_UP, TERMINAL_DOWN, TERMINAL_OTHER };

/* Functions of the library; macros of ncurses.h are made of these. */
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

/* Takes the terminal of standard input and output. MUSTER_E_NOT_FOUND names the package that is missing. */
static int terminal_open(struct muster_error *err)
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

static void terminal_size(int *columns, int *rows)
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

/* Lines as board_screen gives them. */
static void terminal_show(const char *lines)
{
    (void)calls.werase(window); /* a terminal may refuse: then nothing is shown */
    for (int row = 0; *lines; row++) {
        const size_t length = strcspn(lines, "\n");
        (void)calls.wattrset(window, attributes_of(*lines));
        if (length > 1 && calls.wmove(window, row, 0) == OK)
            (void)calls.waddnstr(window, lines + 1, (int)length - 1);
        lines += length + (lines[length] == '\n');
    }
    (void)calls.wrefresh(window);
}

/* Waits for a key, so long at most. */
static enum terminal_key terminal_wait(int patience_ms)
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

/* Gives the terminal back as it was. */
static void terminal_close(void)
{
    (void)calls.endwin();
}

/* --- the command --- */

enum { ONCE_COLUMNS = 132, ONCE_ROWS = 4200, EVERY_MS = 1000 };

struct options {
    char *url, *token_file, *job;
    int64_t pid;
    bool once, help;
};

#define AT(member) KNOB_OFFSET(options, member)

static const struct knob rows[] = {
    {.name = "url",
     .type = KNOB_TEXT,
     .offset = AT(url),
     .section = "Flags",
     .help = "http://HOST:PORT of an agent's --metrics-port; without it an agent of this machine is asked"},
    {.name = "token-file",
     .env = "MUSTER_PAGE_TOKEN_FILE",
     .type = KNOB_TEXT,
     .text = KNOB_FILE,
     .offset = AT(token_file),
     .section = "Flags",
     .help = "file with the token of that agent's page"},
    {.name = "once",
     .type = KNOB_BOOL,
     .offset = AT(once),
     .section = "Flags",
     .help = "print once and exit; also where standard output is no terminal"},
    AGENT_CHOICE_ROWS(AT(pid), AT(job)),
    KNOB_HELP_ROW(AT(help), "Flags"),
};
static const struct knob_table table = {rows, sizeof rows / sizeof *rows};

static int64_t now_ms(void)
{
    return clock_wall_ns() / NS_PER_MS;
}

/* The lines without their marks. */
static void print_lines(const char *lines, struct buffer *out)
{
    for (; *lines; lines++) {
        const char *end = lines;
        while (*end && *end != '\n')
            end++;
        buffer_append(out, lines + 1, (size_t)(end - lines - 1));
        buffer_text(out, "\n");
        lines = *end ? end : end - 1;
    }
}

static int top_once(const struct board_source *source, struct buffer *out, struct buffer *complaint,
                    struct muster_error *err)
{
    int code;
    scope_buffer lines = {0};
    struct board *board = board_source_read(source, &code, complaint, err);
    if (!board)
        return code;
    (void)board_screen(board, now_ms(), ONCE_COLUMNS, ONCE_ROWS, 0, &lines);
    print_lines(lines.data ? lines.data : "", out);
    board_free(board);
    return EXIT_CODE_OK;
}

/* One picture; the board, or why there is none now. Returns how many ranks there are. */
static int show_once(const struct board_source *source, int first)
{
    int code, columns, screen_rows, ranks = 0;
    struct muster_error err = {0};
    scope_buffer lines = {0}, complaint = {0};
    struct board *board = board_source_read(source, &code, &complaint, &err);
    terminal_size(&columns, &screen_rows);
    if (board)
        ranks = board_screen(board, now_ms(), columns, screen_rows - 1, first, &lines);
    else
        buffer_printf(&lines, "!%s\n", *err.text ? err.text : complaint.data ? complaint.data : "no answer");
    buffer_text(&lines, ".q: quit   up, down: other ranks\n");
    board_free(board);
    terminal_show(lines.data && !lines.failed ? lines.data : "");
    return ranks;
}

static int top_run(const struct flag_command *command, struct buffer *out, struct buffer *complaint,
                   struct muster_error *err)
{
    const struct options *options = command->options;
    const struct board_source source = {.command = command->page->name,
                                        .url = options->url,
                                        .token_file = options->token_file,
                                        .pid = options->pid,
                                        .job = options->job};
    int code, first = 0;
    if (options->once || !isatty(STDOUT_FILENO) || !isatty(STDIN_FILENO))
        return top_once(&source, out, complaint, err);
    struct board *board = board_source_read(&source, &code, complaint, err); /* errors before the screen */
    if (!board)
        return code;
    board_free(board);
    if (terminal_open(err) < 0)
        return EXIT_CODE_FAILURE;
    for (enum terminal_key key = TERMINAL_NONE; key != TERMINAL_QUIT;) {
        const int ranks = show_once(&source, first);
        key = terminal_wait(EVERY_MS);
        first += key == TERMINAL_DOWN ? 1 : key == TERMINAL_UP ? -1 : 0;
        first = first < 0 || ranks == 0 ? 0 : first < ranks ? first : ranks - 1;
    }
    terminal_close();
    return EXIT_CODE_OK;
}

const struct command_page top_page = {
    .name = "muster top",
    .brief = "shows a running job in the terminal",
    .description =
        "The job's page in a terminal: ranks with their steps and states, rounds and how long each "
        "recovery took,\nonce a second; q ends it. Of the agent (muster run) on this machine or in this "
        "container, or, with --url, of any\nagent's --metrics-port. The agent that serves the job shows "
        "all nodes.",
    .exit_codes =
        "0 ended by q, or printed; 1 no such agent, or it does not respond; 2 bad usage, or several "
        "agents\nrun and none was chosen (they are listed)",
    .table = &table};

int top_command(int argc, char *const argv[], struct buffer *out, struct buffer *complaint)
{
    struct options options = {0};
    uint8_t sources[sizeof rows / sizeof *rows] = {0};
    const struct flag_command command = {&top_page, &options, &options.help, sources, top_run};
    return flag_command(&command, argc, argv, out, complaint);
}
