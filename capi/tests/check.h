/* A check that ends the program, with the line and what did not hold. */
#ifndef CHECK_H
#define CHECK_H
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define CHECK(what)                                                            \
    do {                                                                       \
        if (!(what)) {                                                         \
            fprintf(stderr, "line %d: %s (errno %d)\n", __LINE__, #what, errno); \
            exit(1);                                                           \
        }                                                                      \
    } while (0)

#endif
