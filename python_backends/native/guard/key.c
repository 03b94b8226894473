/* Puts the admin key into the arguments that main() gets; /proc/PID/cmdline keeps the placeholder.
 */
#include "guard.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define KEY_FD "TRITONKIT_GUARD_KEY_FD"
#define PLACEHOLDER "{admin-key}"

enum { KEY_BYTES = 256, READ_TIMEOUT_MS = 10000 };

static int descriptor_of(const char *text) {
    char *end = NULL;
    errno = 0;
    const long number = strtol(text, &end, 10);
    if (*text < '0' || *text > '9' || *end != '\0' || errno != 0 || number < 3 || number > 65535) {
        guard_fail(KEY_FD, *text == '\0' ? "nothing" : text, "a file descriptor's number");
    }
    return (int)number;
}

static size_t read_some(int descriptor, char *room, size_t size) {
    struct pollfd ready = {.fd = descriptor, .events = POLLIN, .revents = 0};
    ssize_t part = -1;
    do {
        if (poll(&ready, 1, READ_TIMEOUT_MS) == 0) {
            guard_fail(KEY_FD, "no end of the key within 10 s", "a key, then the end of the file");
        }
        part = read(descriptor, room, size);
    } while (part < 0 && errno == EINTR);
    if (part < 0) {
        guard_fail(KEY_FD, strerror(errno), "a descriptor that can be read");
    }
    return (size_t)part;
}

static void read_key(int descriptor, char key[KEY_BYTES]) {
    size_t length = 0, part = 0;
    do {
        part = read_some(descriptor, key + length, KEY_BYTES - length);
        length += part;
    } while (part > 0 && length < KEY_BYTES);
    if (length == KEY_BYTES) {
        guard_fail(KEY_FD, "a longer key", "at most 255 characters");
    }
    length -= length > 0 && key[length - 1] == '\n';
    key[length] = '\0';
    if (length == 0) {
        guard_fail(KEY_FD, "nothing", "a key");
    }
    for (size_t at = 0; at < length; at++) {
        if (key[at] <= ' ' || key[at] > '~') {
            guard_fail(KEY_FD, "a key with other characters", "printable ASCII without spaces");
        }
    }
}

static char *with_key(const char *argument, const char *key) {
    const size_t wide = sizeof PLACEHOLDER - 1;
    /* At most one key for each placeholder that fits. */
    char *filled = malloc((strlen(argument) / wide) * KEY_BYTES + strlen(argument) + 1);
    if (filled == NULL) {
        guard_fail("the admin key", "no memory", "a few KiB");
    }
    char *to = filled;
    for (const char *at = argument; *at != '\0';) {
        if (strncmp(at, PLACEHOLDER, wide) == 0) {
            to = stpcpy(to, key);
            at += wide;
        } else {
            *to++ = *at++;
        }
    }
    *to = '\0';
    return filled;
}

/* Options alone are looked at: a stub's arguments are names and paths. */
static bool has_placeholder(const char *argument) {
    return strncmp(argument, "--", 2) == 0 && strstr(argument, PLACEHOLDER) != NULL;
}

void key_into_arguments(int argc, char **argv) {
    const char *variable = getenv(KEY_FD);
    char key[KEY_BYTES] = "";
    if (variable != NULL) {
        const int descriptor = descriptor_of(variable);
        read_key(descriptor, key);
        close(descriptor);
        unsetenv(KEY_FD);
    }
    for (int at = 1; at < argc; at++) {
        if (has_placeholder(argv[at])) {
            if (variable == NULL) {
                guard_fail(KEY_FD, "nothing", "the descriptor to read the admin key from");
            }
            argv[at] = with_key(argv[at], key);
        }
    }
    explicit_bzero(key, sizeof key);
}
