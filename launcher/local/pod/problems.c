/* problems.c - see problems.h. */
#include "launcher/local/pod/problems.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "proto/base/guard.h"

enum { TEXT_LIMIT = 900 }; /* limit of one message: a log line takes 1,023 bytes */

static const char *problem_type_name(enum problem_type type)
{
    static const char *const names[] = {"Invalid",      "Required", "Forbidden",
                                        "NotSupported", "Warning",  "Note"};
    return (unsigned)type < sizeof names / sizeof *names ? names[type] : "unknown";
}

void problems_path(const struct path *path, struct buffer *out)
{
    if (!path)
        return;
    problems_path(path->up, out);
    if (!path->name)
        buffer_printf(out, "[%zu]", path->index);
    else if (path->key)
        buffer_printf(out, "[%.100s]", path->name);
    else
        buffer_printf(out, "%s%.400s", out->length ? "." : "", path->name);
}

static bool said_before(const struct problems *problems, const char *text)
{
    for (size_t i = 0; i < problems->count; i++)
        if (!strcmp(problems->list[i].text, text))
            return true;
    return false;
}

static bool problems_append(struct problems *problems, struct problem problem)
{
    struct problem *longer = mem_realloc(problems->list, problems->count + 1, sizeof *longer);
    if (!longer)
        return false;
    problems->list = longer;
    problems->list[problems->count++] = problem;
    return true;
}

/* The line of a problem: its file, place, field, type and text. */
static void show_line(enum problem_type type, const char *file, const struct tree_node *at, const char *field,
                      const char *text, struct buffer *line)
{
    buffer_text(line, file);
    if (type != PROBLEM_NOTE && at && at->line)
        buffer_printf(line, ":%d:%d", at->line, at->column);
    buffer_text(line, ": ");
    if (type != PROBLEM_NOTE && *field)
        buffer_printf(line, "%s: ", field);
    if (type < PROBLEM_WARNING)
        buffer_printf(line, "%s: ", problem_type_name(type));
    buffer_text(line, text);
}

void problems_add(struct problems *problems, enum problem_type type, const char *file,
                  const struct tree_node *at, const struct path *path, const char *format, ...)
{
    scope_buffer field = {0}, line = {0};
    char text[TEXT_LIMIT];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    problems->errors += type < PROBLEM_WARNING;
    problems_path(path, &field);
    show_line(type, file, at, field.data ? field.data : "", text, &line);
    if (!line.failed && said_before(problems, line.data))
        return;
    if (problems->count == PROBLEMS_LIMIT) {
        problems->left_out++;
        return;
    }
    struct problem problem = {type, buffer_take(&field), buffer_take(&line)};
    if (problem.field && problem.text && problems_append(problems, problem))
        return;
    problems->failed = true;
    mem_free(problem.field);
    mem_free(problem.text);
}

void problems_fatal(struct problems *problems)
{
    problems->fatal++;
}

void problems_free(struct problems *problems)
{
    if (!problems)
        return;
    for (size_t i = 0; i < problems->count; i++) {
        mem_free(problems->list[i].field);
        mem_free(problems->list[i].text);
    }
    mem_free(problems->list);
    *problems = (struct problems){0};
}
