/* class_folders.h - pictures in folders by class: ROOT/cat/1.png, ROOT/dog/more/2.png, as torchvision's
 * ImageFolder takes them: a class is a folder, its label the place of its name among all of them, sorted;
 * pictures are the files that end in .png (any case) in it and below, folders in the order of their names,
 * links followed. */
#ifndef MUSTER_TRAINER_PICTURES_CLASS_FOLDERS_H
#define MUSTER_TRAINER_PICTURES_CLASS_FOLDERS_H

#include <stdbool.h>

#include "trainer/pictures/block.h"

struct class_names {
    int count;
    char *name[PICTURE_CLASSES_LIMIT];
};
void class_names_free(struct class_names *names); /* accepts a zeroed one */

/* Whether a folder has folders that are not hidden; -1: that cannot be found out. */
int class_folders_there(const char *root, struct muster_error *err);

/* All pictures, decoded, in planes of `shape`; names gets the classes. Errors name the folder or file: none
 * or too many classes, a class without pictures, a picture of another format, a file that cannot be read. The
 * caller frees block and names, also after an error. */
int class_folders_open(struct picture_block *block, struct class_names *names, const char *root,
                       const struct picture_shape *shape, struct muster_error *err);

#endif
