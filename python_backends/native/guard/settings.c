/* What the guard is told, by environment variables that hold no secret. */
#include "guard.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PORT "TRITONKIT_GUARD_GRPC_PORT"
#define SOCKET "TRITONKIT_GUARD_GRPC_SOCKET"
#define MAX_MESSAGE "TRITONKIT_GUARD_MAX_MESSAGE_BYTES"
#define UNREAD_MIB "TRITONKIT_GUARD_UNREAD_MIB"
#define UNREAD_S "TRITONKIT_GUARD_UNREAD_S"
#define CALLS "TRITONKIT_GUARD_CALLS"

/* As tritonkit's own for a server that does not start. */
enum { EXIT_CODE = 4 };

enum { DEFAULT_UNREAD_MIB = 128, DEFAULT_UNREAD_S = 900, MOST_MIB = 1 << 20, DAY_S = 86400 };
enum { DEFAULT_CALLS = 16384, MOST_CALLS = 1 << 20 };

struct settings guard_settings;

_Noreturn void guard_fail(const char *where, const char *found, const char *wanted) {
    fprintf(stderr, "tritonkit guard: %s: found %s, wanted %s\n", where, found, wanted);
    fflush(stderr);
    _exit(EXIT_CODE);
}

static uint32_t whole_number(const char *variable, const char *text, uint32_t least,
                             uint32_t most) {
    char *end = NULL;
    errno = 0;
    const long long value = strtoll(text, &end, 10);
    if (*text < '0' || *text > '9' || *end != '\0' || errno != 0 || value < least || value > most) {
        char wanted[64];
        snprintf(wanted, sizeof wanted, "a whole number from %u to %u", least, most);
        guard_fail(variable, *text == '\0' ? "nothing" : text, wanted);
    }
    return (uint32_t)value;
}

static uint32_t number_or(const char *variable, uint32_t otherwise, uint32_t most) {
    const char *const text = getenv(variable);
    return text == NULL ? otherwise : whole_number(variable, text, 1, most);
}

static void read_settings(void) {
    const char *port = getenv(PORT), *socket = getenv(SOCKET), *most = getenv(MAX_MESSAGE);
    guard_settings.grpc_port = port == NULL ? 0 : (uint16_t)whole_number(PORT, port, 0, UINT16_MAX);
    if (socket != NULL && *socket != '/') {
        guard_fail(SOCKET, *socket == '\0' ? "nothing" : socket, "the absolute path of a socket");
    }
    guard_settings.grpc_socket = socket == NULL ? NULL : strdup(socket);
    if (most != NULL && port == NULL && socket == NULL) {
        guard_fail(PORT, "nothing, nor " SOCKET, "where gRPC listens; port 0 for nowhere");
    }
    if (guard_settings.grpc_port != 0 || socket != NULL) {
        guard_settings.max_message_bytes =
            whole_number(MAX_MESSAGE, most == NULL ? "" : most, 1, INT32_MAX);
    }
    guard_settings.unread_mib = number_or(UNREAD_MIB, DEFAULT_UNREAD_MIB, MOST_MIB);
    guard_settings.unread_s = number_or(UNREAD_S, DEFAULT_UNREAD_S, DAY_S);
    guard_settings.calls = number_or(CALLS, DEFAULT_CALLS, MOST_CALLS);
}

/* glibc hands a constructor what main() will get. */
__attribute__((constructor)) static void begin(int argc, char **argv) {
    read_settings();
    key_into_arguments(argc, argv);
    if (guard_settings.grpc_port != 0 || guard_settings.grpc_socket != NULL) {
        stopping_begin();
    }
    /* The server's children load the guard too, and have no gRPC port and no key. */
    unsetenv(PORT);
    unsetenv(SOCKET);
    unsetenv(MAX_MESSAGE);
    unsetenv(UNREAD_MIB);
    unsetenv(UNREAD_S);
    unsetenv(CALLS);
}
