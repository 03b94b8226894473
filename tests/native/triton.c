/* What stands for libtritonserver where requests are counted: one model, whose requests a thread
   answers in any order. It watches how many there are at once. */
#include "triton.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST = 64, INVALID_ARGUMENT = 3 };

struct request {
  void (*release)(void*, uint32_t, void*);
  void* payload;
  uint64_t timeout_us;
  bool can_answer, is_invalid;
  void (*answered)(unsigned);
};

struct error {
  unsigned code;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static struct request* taken[MOST];
static unsigned count, most, limit;
static bool answers, is_begun;

void* TRITONSERVER_ErrorNew(unsigned code, const char* message) {
  (void)message;
  struct error* error = malloc(sizeof *error);
  error->code = code;
  return error;
}

unsigned TRITONSERVER_ErrorCode(void* error) { return ((struct error*)error)->code; }

const char* TRITONSERVER_ErrorMessage(void* error) { return (void)error, ""; }

void TRITONSERVER_ErrorDelete(void* error) { free(error); }

void* TRITONSERVER_ServerModelConfig(void* server, const char* model, int64_t version, uint32_t form, void** message) {
  (void)server, (void)version, (void)form;
  char* text = malloc(256);
  snprintf(text, 256,
           "{\"name\":\"%s\",\"parameters\":{\"tritonkit.max_inflight_requests\":{\"string_value\":\"%u\"}}}", model,
           limit);
  *message = text;
  return NULL;
}

void* TRITONSERVER_MessageSerializeToJson(void* message, const char** json, size_t* length) {
  *json = message;
  *length = strlen(message);
  return NULL;
}

void* TRITONSERVER_MessageDelete(void* message) { return free(message), NULL; }

void* TRITONSERVER_ServerLoadModel(void* server, const char* model) { return (void)server, (void)model, NULL; }

void* TRITONSERVER_ServerStop(void* server) { return (void)server, NULL; }

void* TRITONSERVER_InferenceRequestNew(void** request, void* server, const char* model, int64_t version) {
  (void)server, (void)model, (void)version;
  *request = calloc(1, sizeof(struct request));
  return NULL;
}

void* TRITONSERVER_InferenceRequestSetReleaseCallback(void* handle, void (*release)(void*, uint32_t, void*),
                                                      void* payload) {
  struct request* request = handle;
  request->release = release;
  request->payload = payload;
  return NULL;
}

void* TRITONSERVER_InferenceRequestTimeoutMicroseconds(void* request, uint64_t* timeout_us) {
  *timeout_us = ((struct request*)request)->timeout_us;
  return NULL;
}

void* TRITONSERVER_InferenceRequestAddRequestedOutput(void* request, const char* name) {
  (void)name;
  ((struct request*)request)->is_invalid = true;
  return NULL;
}

void* TRITONSERVER_InferenceRequestCancel(void* request) { return (void)request, NULL; }

void* TRITONSERVER_InferenceRequestDelete(void* request) { return free(request), NULL; }

void* TRITONBACKEND_ResponseNew(void** response, void* request) {
  if (!((struct request*)request)->can_answer) {
    abort(); /* so does Triton, of a request that it has not seen */
  }
  *response = request;
  return NULL;
}

void* TRITONBACKEND_ResponseSend(void* response, uint32_t flags, void* error) {
  (void)flags;
  ((struct request*)response)->answered(((struct error*)error)->code);
  return NULL;
}

static struct request* any_taken(unsigned* seed) {
  pthread_mutex_lock(&lock);
  while (count == 0 || !answers) {
    pthread_cond_wait(&changed, &lock);
  }
  unsigned at = (unsigned)rand_r(seed) % count;
  struct request* request = taken[at];
  taken[at] = taken[--count];
  pthread_mutex_unlock(&lock);
  return request;
}

static void* answer_all(void* unused) {
  unsigned seed = 1;
  for (;;) {
    nanosleep(&(struct timespec){0, 20000}, NULL);
    struct request* request = any_taken(&seed);
    request->answered(0);
    request->release(request, 1, request->payload);
  }
  return unused;
}

void* TRITONSERVER_ServerInferAsync(void* server, void* handle, void* trace) {
  (void)server, (void)trace;
  struct request* request = handle;
  request->can_answer = true;
  if (request->is_invalid) {
    return TRITONSERVER_ErrorNew(INVALID_ARGUMENT, "");
  }
  pthread_mutex_lock(&lock);
  taken[count++] = request;
  most = count > most ? count : most;
  pthread_cond_signal(&changed);
  pthread_mutex_unlock(&lock);
  return NULL;
}

void prepare(void* handle, uint64_t timeout_us, bool is_invalid, void (*answered)(unsigned)) {
  struct request* request = handle;
  request->timeout_us = timeout_us;
  request->is_invalid = is_invalid;
  request->answered = answered;
}

void configure(unsigned number) { limit = number; }

void answer(bool does) {
  pthread_t thread;
  pthread_mutex_lock(&lock);
  answers = does;
  is_begun = is_begun || pthread_create(&thread, NULL, answer_all, NULL) == 0;
  pthread_cond_signal(&changed);
  pthread_mutex_unlock(&lock);
}

unsigned most_at_once(void) {
  pthread_mutex_lock(&lock);
  unsigned found = most;
  most = 0;
  pthread_mutex_unlock(&lock);
  return found;
}
