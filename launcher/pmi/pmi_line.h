/* pmi_line.h - pure: one line of PMI-1, "cmd=NAME key=value ...". A value ends at a blank; the field "value"
 * reaches to the end of the line. */
#ifndef MUSTER_LAUNCHER_PMI_PMI_LINE_H
#define MUSTER_LAUNCHER_PMI_PMI_LINE_H

enum { PMI_LINE_FIELDS = 32 };

struct pmi_line {
    struct {
        const char *name, *value; /* in the text */
    } fields[PMI_LINE_FIELDS];
    int count;
};

/* Cuts the text into fields, in place. -1: it is no such line, has no cmd or mcmd, or too many fields. */
int pmi_line_parse(char *text, struct pmi_line *line);
/* NULL: there is no such field. */
const char *pmi_line_get(const struct pmi_line *line, const char *name);

#endif
