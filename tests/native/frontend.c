/* Threads that send requests as Triton's front ends do: some are invalid, some have a short timeout,
   some are cancelled, whatever has become of them. Prints, for each limit of the model, the most
   requests that were under way at once, and how many were answered and released, of all; then how
   many of ten the server refused when it was stopped. */
#include "triton.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { THREADS = 4, EACH = 1500, LAST = 10, UNAVAILABLE = 4 };

static atomic_uint answered, unavailable, released, refused;

static void on_answer(unsigned code) {
  atomic_fetch_add(&answered, 1);
  atomic_fetch_add(&unavailable, code == UNAVAILABLE);
}

/* The thread that sends it and Triton both have it; the last one deletes it. */
static void let_go(void* request, atomic_int* owners) {
  if (atomic_fetch_sub(owners, 1) == 1) {
    TRITONSERVER_InferenceRequestDelete(request);
    free(owners);
  }
}

static void on_release(void* request, uint32_t flags, void* payload) {
  (void)flags;
  atomic_fetch_add(&released, 1);
  let_go(request, payload);
}

static void send_one(uint64_t timeout_us, bool is_invalid, bool is_left) {
  void* request = NULL;
  atomic_int* owners = malloc(sizeof *owners);
  atomic_init(owners, 2);
  TRITONSERVER_InferenceRequestNew(&request, NULL, "counted", -1);
  TRITONSERVER_InferenceRequestSetReleaseCallback(request, on_release, owners);
  prepare(request, timeout_us, is_invalid, on_answer);
  void* error = TRITONSERVER_ServerInferAsync(NULL, request, NULL);
  if (error != NULL) {
    atomic_fetch_add(&refused, 1);
    TRITONSERVER_ErrorDelete(error);
    let_go(request, owners);
  } else if (is_left) {
    TRITONSERVER_InferenceRequestCancel(request);
  }
  let_go(request, owners);
}

static void* send_many(void* unused) {
  for (unsigned number = 0; number < EACH; number++) {
    send_one(number % 5 == 0 ? 100 : 0, number % 7 == 0, number % 3 == 0);
  }
  return unused;
}

static void await_ends(unsigned all) {
  while (atomic_load(&released) + atomic_load(&refused) < all) {
    nanosleep(&(struct timespec){0, 1000000}, NULL);
  }
}

static void try_limit(unsigned limit) {
  pthread_t threads[THREADS];
  atomic_store(&answered, 0);
  atomic_store(&released, 0);
  atomic_store(&refused, 0);
  configure(limit);
  TRITONSERVER_ServerLoadModel(NULL, "counted");
  for (unsigned at = 0; at < THREADS; at++) {
    pthread_create(&threads[at], NULL, send_many, NULL);
  }
  for (unsigned at = 0; at < THREADS; at++) {
    pthread_join(threads[at], NULL);
  }
  await_ends(THREADS * EACH);
  const bool is_right = atomic_load(&answered) == atomic_load(&released);
  printf("%u %s\n", most_at_once(), is_right ? "answered" : "lost");
}

static void stop(void) {
  answer(false);
  atomic_store(&unavailable, 0);
  for (unsigned number = 0; number < LAST; number++) {
    send_one(0, false, false);
  }
  TRITONSERVER_ServerStop(NULL);
  printf("%u refused\n", atomic_load(&unavailable));
}

int main(void) {
  answer(true);
  try_limit(1);
  try_limit(3);
  stop();
  return 0;
}
