/* Triton's Python backend makes a folder for models' environments in every server, and only an
   orderly end removes it: each server that is killed left one in /tmp. In the server's working
   directory, which is its run's own, it goes with the run, or when the next server starts there. */
#include "real.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char USUAL[] = "/tmp/python_env_XXXXXX", NAME[] = "/python_env_XXXXXX";

EXPORTED char *mkdtemp(char *template) {
    char folder[PATH_MAX];
    /* The backend's array has room for any path (pb_env.cc). */
    if (strcmp(template, USUAL) != 0 || getcwd(folder, sizeof folder) == NULL ||
        strlen(folder) + sizeof NAME > PATH_MAX) {
        return real_mkdtemp(template);
    }
    strcpy(stpcpy(template, folder), NAME);
    if (real_mkdtemp(template) != NULL) {
        return template;
    }
    return real_mkdtemp(strcpy(template, USUAL));
}
