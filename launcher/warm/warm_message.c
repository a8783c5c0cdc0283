/* warm_message.c - see warm_message.h. */
#include "launcher/warm/warm_message.h"

#include <stdlib.h>
#include <string.h>

#include "proto/base/guard.h"

extern const char warm_python_template[];

/* --- answers --- */

/* A number from 1 to INT32_MAX and the blank or NUL after it; false: none. */
static bool warm_take_number(const char **at, long *value)
{
    char *end;
    if (**at < '0' || **at > '9')
        return false;
    *value = strtol(*at, &end, 10);
    if (*value > INT32_MAX || (*end && *end != ' '))
        return false;
    *at = end + (*end == ' ');
    return true;
}

bool warm_answer_parse(const char *message, struct warm_answer *answer)
{
    static const char *const words[] = {
#define WARM_ANSWER_WORD(symbol, word, meaning) [symbol] = (word),
        WARM_ANSWERS(WARM_ANSWER_WORD)
#undef WARM_ANSWER_WORD
    };
    size_t length = strcspn(message, " \n");
    long number = 0, pid = 0;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (strlen(words[i]) != length || memcmp(words[i], message, length) != 0)
            continue;
        const char *at = message + length + (message[length] != '\0');
        if (i != WARM_READY && !warm_take_number(&at, &number))
            return false;
        if (i == WARM_WORKER && (!warm_take_number(&at, &pid) || pid <= 0 || *at))
            return false;
        *answer = (struct warm_answer){(enum warm_answer_kind)i, (unsigned)number, (pid_t)pid, at};
        return true;
    }
    return false;
}

/* --- requests --- */

int warm_request_write(unsigned number, pid_t agent, const struct numa_mask *cpus, struct buffer *out)
{
    buffer_printf(out, "fork %u %d ", number, (int)agent);
    if (cpus)
        numa_mask_print(cpus, out);
    else
        buffer_text(out, "-");
    return out->failed ? -1 : 0;
}

static void put_texts(char *const *texts, struct buffer *out)
{
    size_t count = 0;
    while (texts[count])
        count++;
    buffer_printf(out, "%zu", count);
    buffer_append(out, "", 1);
    for (size_t i = 0; i < count; i++)
        buffer_append(out, texts[i], strlen(texts[i]) + 1);
}

int warm_payload_write(char *const *argv, char *const *envp, struct buffer *out)
{
    put_texts(argv, out);
    put_texts(envp, out);
    return out->failed ? -1 : 0;
}

/* --- the template for Python --- */

static int take_modules(const char *modules, struct text_list *command)
{
    for (const char *at = modules; *at;) {
        size_t length = strcspn(at, ",");
        if (length && text_list_take(command, mem_strndup(at, length)) < 0)
            return -1;
        at += length + (at[length] == ',');
    }
    return 0;
}

int warm_python_command(const char *modules, char *const *worker, struct text_list *command)
{
    const char *const front[] = {worker[0], "-u", "-c", warm_python_template};
    for (size_t i = 0; i < sizeof front / sizeof *front; i++)
        if (text_list_take(command, mem_strdup(front[i])) < 0)
            return -1;
    if (take_modules(modules, command) < 0 || text_list_take(command, mem_strdup("--")) < 0)
        return -1;
    for (; *worker; worker++)
        if (text_list_take(command, mem_strdup(*worker)) < 0)
            return -1;
    return 0;
}
