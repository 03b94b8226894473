// NVIDIA's trtexec, as `tritonkit build --in-container` calls it: it takes a network that it can read, writes a plan
// and the lines of its log that name its version and the GPU. FAILS, SILENT and WAITS are compiled in.
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char* value(int count, char** words, const char* name) {
  const size_t length = strlen(name);
  for (int place = 1; place < count; ++place) {
    if (strncmp(words[place], name, length) == 0) return words[place] + length;
  }
  return "";
}

static void say(const char* level, const char* text) { printf("[11/28/2026-02:00:00] [%s] %s\n", level, text); }

// Whether a file can be made in a folder that is to be read only.
static int writes_into_network(void) {
  FILE* file = fopen("/network/written", "w");
  if (file == NULL) return 0;
  fclose(file);
  return 1;
}

// Whether a line of the kernel's status of this process is there.
static int has_status(const char* wanted) {
  char line[256];
  int found = 0;
  FILE* status = fopen("/proc/self/status", "r");
  while (status != NULL && fgets(line, sizeof line, status) != NULL) {
    if (strcmp(line, wanted) == 0) found = 1;
  }
  if (status != NULL) fclose(status);
  return found;
}

// Whether this process can get neither capabilities nor the rights of a program's owner.
static int is_confined(void) { return has_status("CapBnd:\t0000000000000000\n") && has_status("NoNewPrivs:\t1\n"); }

int main(int count, char** words) {
  printf("&&&& RUNNING TensorRT.trtexec [TensorRT v100500] [b18] #");
  for (int place = 0; place < count; ++place) printf(" %s", words[place]);
  printf("\n");
#ifndef SILENT
  say("I", "=== Device Information ===");
  say("I", "Selected Device: NVIDIA H100 80GB HBM3");
  say("I", "Compute Capability: 9.0");
  say("I", "TensorRT version: 10.5.0");
#endif
  FILE* network = fopen(value(count, words, "--onnx="), "rb");
  if (network == NULL || writes_into_network()) {
    say("E", "the network cannot be read, or its folder can be written");
    return 1;
  }
  if (!is_confined()) {
    say("E", "the container has rights that nothing needs");
    return 1;
  }
#ifdef WAITS
  fflush(stdout);
  for (;;) pause();
#endif
#ifdef FAILS
  say("W", "something else");
  say("E", "Error[4]: IBuilder::buildSerializedNetwork: no kernel");
  say("E", "Engine set up failed");
  return 1;
#endif
  FILE* plan = fopen(value(count, words, "--saveEngine="), "wb");
  FILE* timing = fopen(value(count, words, "--timingCacheFile="), "ab");
  if (plan == NULL || timing == NULL) return 2;
  for (int byte = fgetc(network); byte != EOF; byte = fgetc(network)) fputc(byte, plan);
  fputs("+", timing);
  fclose(plan);
  fclose(timing);
  fclose(network);
  say("I", "Created engine with size: 0.1 MiB");
  return 0;
}
