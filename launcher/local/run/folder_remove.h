/* folder_remove.h - removes a run's folder with everything in it, by system calls only: for a guardian too.
 */
#ifndef MUSTER_LAUNCHER_LOCAL_RUN_FOLDER_REMOVE_H
#define MUSTER_LAUNCHER_LOCAL_RUN_FOLDER_REMOVE_H

/* Removes what is in the folder; links are not followed. What cannot be removed stays (another user's file
 * in a folder of his): the folder is in a temporary place. */
void folder_remove_content(const char *path);

#endif
