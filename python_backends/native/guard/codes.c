/* The code of an error that passes through a Python model, kept.

   A Python model may call another model (BLS) and pass its error on. Triton's Python backend, up to
   2.73, takes only the text of such an error: its code is INTERNAL from there on, for the model
   that called and for its own callers. The guard notes code and text of the errors that the backend
   takes out of responses, and an INTERNAL error that the backend makes with one of these texts,
   word for word or after words of its own and ": ", gets that code again. */
#include "guard.h"
#include "real.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

/* Of Triton's stable C interface: TRITONSERVER_ERROR_INTERNAL. */
enum { INTERNAL = 1 };
enum { MOST_NOTED = 64, LONGEST_TEXT = 4096 };

/* Triton's own word for a request that it did not begin with. From a model it is no such proof, so
   it does not come to look like one. */
static const char EXPIRED[] = "Request timeout expired";

static struct noted {
    char *text;
    unsigned code;
} noted[MOST_NOTED]; /* a ring */
static size_t next;
static atomic_bool any;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static bool of_python_backend(const void *address) {
    Dl_info object;
    return dladdr(address, &object) != 0 && strstr(object.dli_fname, "libtriton_python") != NULL;
}

static struct noted *find(const char *text) {
    for (size_t at = 0; at < MOST_NOTED; at++) {
        if (noted[at].text != NULL && strcmp(noted[at].text, text) == 0) {
            return &noted[at];
        }
    }
    return NULL;
}

static void note(unsigned code, const char *text) {
    if (strnlen(text, LONGEST_TEXT) == LONGEST_TEXT || strcmp(text, EXPIRED) == 0) {
        return;
    }
    pthread_mutex_lock(&lock);
    struct noted *place = find(text);
    if (place == NULL && code != INTERNAL) {
        char *const copy = strdup(text);
        if (copy != NULL) {
            place = &noted[next];
            next = (next + 1) % MOST_NOTED;
            free(place->text);
            place->text = copy;
            atomic_store(&any, true);
        }
    }
    if (place != NULL) {
        place->code = code;
    }
    pthread_mutex_unlock(&lock);
}

/* The longest noted text with which `text` ends. */
static const struct noted *find_passed(const char *text) {
    const size_t size = strlen(text);
    const struct noted *longest = NULL;
    size_t most = 0;
    for (size_t at = 0; at < MOST_NOTED; at++) {
        const size_t length = noted[at].text != NULL ? strlen(noted[at].text) : 0;
        if (length <= most || length > size) {
            continue;
        }
        const char *const end = text + size - length;
        const bool whole = end == text || (end - text > 2 && strncmp(end - 2, ": ", 2) == 0);
        if (whole && strcmp(end, noted[at].text) == 0) {
            longest = &noted[at];
            most = length;
        }
    }
    return longest;
}

static unsigned code_of(const char *text) {
    pthread_mutex_lock(&lock);
    const struct noted *const place = find_passed(text);
    const unsigned code = place != NULL ? place->code : INTERNAL;
    pthread_mutex_unlock(&lock);
    return code;
}

EXPORTED void *TRITONSERVER_InferenceResponseError(void *response) {
    void *const error = real_TRITONSERVER_InferenceResponseError(response);
    if (error != NULL && of_python_backend(__builtin_return_address(0))) {
        note(real_TRITONSERVER_ErrorCode(error), real_TRITONSERVER_ErrorMessage(error));
    }
    return error;
}

EXPORTED void *TRITONSERVER_ErrorNew(unsigned code, const char *message) {
    if (code == INTERNAL && atomic_load(&any) && of_python_backend(__builtin_return_address(0))) {
        code = code_of(message);
    }
    return real_TRITONSERVER_ErrorNew(code, message);
}
