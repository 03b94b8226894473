/* Two threads that take two locks in two orders, each with one in hand before it asks for the
   other: as in Triton's gRPC streams when a caller leaves amid an answer. Prints who had both, in
   order. */
#include <pthread.h>
#include <stdio.h>

/* Of libtritonserver here. */
void send_answer(void* (*answer)(void*));

static pthread_mutex_t stream = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static pthread_mutex_t request = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static pthread_barrier_t both;

static void had_both(const char* who) {
  printf("%s\n", who);
  fflush(stdout);
}

static void* answer(void* unused) {
  pthread_mutex_lock(&stream);
  pthread_barrier_wait(&both);
  pthread_mutex_lock(&request);
  had_both("answer");
  pthread_mutex_unlock(&request);
  pthread_mutex_unlock(&stream);
  return unused;
}

static void* backend(void* unused) {
  send_answer(answer);
  return unused;
}

static void* caller_left(void* unused) {
  pthread_mutex_lock(&request);
  pthread_mutex_lock(&request);
  pthread_barrier_wait(&both);
  pthread_mutex_lock(&stream);
  had_both("left");
  pthread_mutex_unlock(&stream);
  pthread_mutex_unlock(&request);
  pthread_mutex_unlock(&request);
  return unused;
}

int main(void) {
  pthread_t threads[2];
  pthread_barrier_init(&both, NULL, 2);
  pthread_create(&threads[0], NULL, backend, NULL);
  pthread_create(&threads[1], NULL, caller_left, NULL);
  for (int at = 0; at < 2; at++) {
    pthread_join(threads[at], NULL);
  }
  /* Nobody has them any more. */
  return pthread_mutex_trylock(&stream) != 0 || pthread_mutex_trylock(&request) != 0;
}
