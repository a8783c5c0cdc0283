/* interpreter.c - see interpreter.h: the decision. */
#include "launcher/process/interpreter.h"

#include <string.h>

#include "proto/base/mem.h"

/* An environment's own folder. That of the system is one where conda was installed into it. */
static bool interpreter_is_home(const struct interpreter_folder *folder)
{
    return folder->path && folder->python &&
           (folder->is_environment || (folder->has_library && !folder->is_system));
}

/* Of a wheel in the system's or the user's folders, whose scripts lie next to the machine's programs. */
static char *interpreter_of_wheel(const struct interpreter_folder *folder)
{
    if (!folder->path || !folder->wheel)
        return NULL;
    if (folder->has_wheel_python)
        return mem_printf("%s/python3.%d", folder->path, folder->wheel);
    return folder->has_path_wheel ? mem_printf("python3.%d", folder->wheel) : NULL;
}

char *interpreter_choose(const struct interpreter_facts *facts, bool *of_called)
{
    const struct interpreter_folder *end = facts->folders + facts->count, *file = end - 1;
    *of_called = false;
    for (const struct interpreter_folder *folder = facts->folders; folder < end; folder++)
        if (interpreter_is_home(folder)) {
            *of_called = folder != file && !(file->path && !strcmp(folder->path, file->path));
            return mem_printf("%s/%s", folder->path, folder->python);
        }
    char *found = NULL;
    for (const struct interpreter_folder *folder = facts->folders;
         folder < end && !found && !facts->is_activated; folder++)
        found = interpreter_of_wheel(folder);
    for (const struct interpreter_folder *folder = facts->folders; folder < end && !found && !facts->has_path;
         folder++)
        if (folder->path && folder->python) /* cron's PATH is short */
            found = mem_printf("%s/%s", folder->path, folder->python);
    return found;
}
