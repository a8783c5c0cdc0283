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
static char *interpreter_of_wheel(const struct interpreter_folder *folder, bool is_in_path)
{
    if (!folder->path || !folder->wheel)
        return NULL;
    if (folder->has_wheel_python)
        return mem_printf("%s/python3.%d", folder->path, folder->wheel);
    return is_in_path ? mem_printf("python3.%d", folder->wheel) : NULL;
}

char *interpreter_choose(const struct interpreter_facts *facts, bool *of_called)
{
    const struct interpreter_folder *folders[] = {&facts->called, &facts->real};
    *of_called = false;
    for (int i = 0; i < 2; i++)
        if (interpreter_is_home(folders[i])) {
            *of_called = i == 0 && !(folders[1]->path && !strcmp(folders[0]->path, folders[1]->path));
            return mem_printf("%s/%s", folders[i]->path, folders[i]->python);
        }
    if (!facts->is_activated) {
        char *found = interpreter_of_wheel(&facts->called, facts->has_path_wheel_called);
        found = found ? found : interpreter_of_wheel(&facts->real, facts->has_path_wheel_real);
        if (found)
            return found;
    }
    for (int i = 0; i < 2 && !facts->has_path; i++) /* cron's PATH is short */
        if (folders[i]->path && folders[i]->python)
            return mem_printf("%s/%s", folders[i]->path, folders[i]->python);
    return NULL;
}
