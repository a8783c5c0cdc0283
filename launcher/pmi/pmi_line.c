/* pmi_line.c - see pmi_line.h. */
#include "launcher/pmi/pmi_line.h"

#include <stddef.h>
#include <string.h>

const char *pmi_line_get(const struct pmi_line *line, const char *name)
{
    for (int i = 0; i < line->count; i++)
        if (strcmp(line->fields[i].name, name) == 0)
            return line->fields[i].value;
    return NULL;
}

int pmi_line_parse(char *text, struct pmi_line *line)
{
    line->count = 0;
    while (*(text += strspn(text, " "))) {
        char *equal = strpbrk(text, "= ");
        if (!equal || *equal == ' ' || equal == text || line->count == PMI_LINE_FIELDS)
            return -1;
        *equal = '\0';
        const char *name = strcmp(text, "mcmd") == 0 ? "cmd" : text;
        char *value = equal + 1,
             *end = value + (strcmp(name, "value") == 0 ? strlen(value) : strcspn(value, " "));
        line->fields[line->count].name = name;
        line->fields[line->count++].value = value;
        text = *end ? end + 1 : end;
        *end = '\0';
    }
    return pmi_line_get(line, "cmd") ? 0 : -1;
}
