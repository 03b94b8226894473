/* A thread that waits as Triton's batcher does: on a condition with a mutex of its own, for what
   another thread changes without a word.

   `batcher own` waits up to an hour with the mutex in its own frame, `batcher end` 20 ms, and
   `batcher shared` 20 ms with a mutex that others could have, once. Prints what the waits gave. */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
static pthread_mutex_t shared = PTHREAD_MUTEX_INITIALIZER;
static atomic_int looks;
static atomic_bool is_free;

static struct timespec in(long seconds, long ms) {
  struct timespec until;
  clock_gettime(CLOCK_MONOTONIC, &until);
  until.tv_sec += seconds;
  until.tv_nsec += ms * 1000000;
  until.tv_sec += until.tv_nsec / 1000000000;
  until.tv_nsec %= 1000000000;
  return until;
}

static const char* outcome(int error) { return error == 0 ? "looked" : error == ETIMEDOUT ? "timed out" : "failed"; }

/* Like std::condition_variable::wait_until with a predicate. */
static const char* wait_in_own_frame(struct timespec until) {
  pthread_mutex_t own = PTHREAD_MUTEX_INITIALIZER;
  int error = 0;
  pthread_mutex_lock(&own);
  while (!atomic_load(&is_free) && error == 0) {
    atomic_fetch_add(&looks, 1);
    error = pthread_cond_clockwait(&condition, &own, CLOCK_MONOTONIC, &until);
  }
  pthread_mutex_unlock(&own);
  return outcome(error);
}

/* Not before the waiting thread has found nothing. */
static void* become_free(void* unused) {
  while (atomic_load(&looks) == 0) {
    nanosleep(&(struct timespec){0, 1000000}, NULL);
  }
  atomic_store(&is_free, true);
  return unused;
}

int main(int argc, char** argv) {
  const char* how = argc > 1 ? argv[1] : "";
  if (strcmp(how, "own") == 0) {
    pthread_t instance;
    pthread_create(&instance, NULL, become_free, NULL);
    printf("%s\n", wait_in_own_frame(in(3600, 0)));
    pthread_join(instance, NULL);
  } else if (strcmp(how, "end") == 0) {
    const struct timespec until = in(0, 20);
    printf("%s", wait_in_own_frame(until));
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    const bool is_early = now.tv_sec < until.tv_sec || (now.tv_sec == until.tv_sec && now.tv_nsec < until.tv_nsec);
    printf(is_early ? " early\n" : "\n");
  } else {
    const struct timespec until = in(0, 20);
    pthread_mutex_lock(&shared);
    printf("%s\n", outcome(pthread_cond_clockwait(&condition, &shared, CLOCK_MONOTONIC, &until)));
  }
  return 0;
}
